import pytest

from ddp_bench.errors import UsageError
from ddp_bench.modes import MODES, SoloMode, choose_modes


def test_all_means_every_solo_device():
    assert [m.name for m in choose_modes("all", device_type="cpu", device_count=1)] == ["solo-0"]
    assert [m.name for m in choose_modes("all", device_type="cuda", device_count=3)] == [
        "solo-0",
        "solo-1",
        "solo-2",
    ]


def test_solo_mode_names_its_device():
    assert choose_modes("solo-1", device_type="cuda", device_count=2) == [SoloMode(index=1)]


def test_solo_device_that_is_not_there_is_misuse():
    with pytest.raises(UsageError, match="the CPU is one device"):
        choose_modes("solo-1", device_type="cpu", device_count=1)
    with pytest.raises(UsageError, match=r"2 GPU\(s\) here\nhint: use solo-0 to solo-1"):
        choose_modes("solo-2", device_type="cuda", device_count=2)


@pytest.mark.parametrize(
    "name",
    [mode.name for mode in MODES if mode.unavailable and "*" not in mode.name]
    + ["cpu-async-diloco", "cpu-sync-slowmo"],
)
def test_known_mode_says_that_it_is_not_available(name):
    with pytest.raises(UsageError, match="not available in this version") as caught:
        choose_modes(name, device_type="cpu", device_count=1)
    assert "modes that run here: solo-0" in str(caught.value)


@pytest.mark.parametrize(("old", "new"), [("sync", "nccl-sync"), ("nccl-async", "cpu-async")])
def test_mode_of_older_releases_names_its_successor(old, new):
    with pytest.raises(UsageError, match=f"now called '{new}'"):
        choose_modes(old, device_type="cpu", device_count=1)


@pytest.mark.parametrize("name", ["solo", "solo-", "solo-01", "solo--1", "nccl-sync-slowmo", "x"])
def test_unknown_mode_lists_the_legal_ones(name):
    with pytest.raises(UsageError, match=r"unknown mode .*modes: solo-0, nccl-sync"):
        choose_modes(name, device_type="cpu", device_count=1)


def test_one_wrong_mode_in_a_list_rejects_the_list():
    with pytest.raises(UsageError, match="'cpu-async'"):
        choose_modes("solo-0,cpu-async", device_type="cpu", device_count=1)
