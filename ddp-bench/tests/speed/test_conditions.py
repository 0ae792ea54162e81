import os
import signal

import pytest

from ddp_bench.errors import UsageError
from ddp_bench.speed import conditions

CARD = "NVIDIA H200, 580.159.04, 1980 MHz, 3201 MHz, 1980 MHz, 120.5 W, 143771 MiB"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A program of that name that writes down its arguments; returns the file of them."""
    calls, program = tmp_path / "calls", tmp_path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n[ -e {tmp_path}/refuse ] && exit 4\necho "{CARD}"\n'
    )
    program.chmod(0o755)
    calls.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return calls


def test_card_tells_its_name_driver_and_clocks(nvidia_smi):
    facts = conditions.gpu_facts()
    assert facts["name"] == "NVIDIA H200"
    assert facts["driver_version"] == "580.159.04"
    assert facts["clocks.sm"] == "1980 MHz"


def test_machine_without_the_program_has_no_card(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert conditions.gpu_facts() == {}


def test_description_of_a_gpu_machine_names_card_and_driver(nvidia_smi):
    facts = conditions.describe("cuda")
    assert facts["gpus"] == ["NVIDIA H200"]
    assert facts["driver"] == "580.159.04"
    assert conditions.describe("cpu")["gpus"] is None


def test_versions_of_the_competitors_are_told_where_they_are_installed(monkeypatch):
    monkeypatch.setattr(conditions, "version", lambda name: f"{name} 2.6")
    assert conditions.describe("cpu")["lightning"] == "pytorch-lightning 2.6"
    monkeypatch.undo()
    assert "lightning" in conditions.describe("cpu")


def test_clocks_are_left_alone_unless_asked_for(nvidia_smi):
    with conditions.locked_clocks(None) as state:
        assert state == "unlocked"
    assert nvidia_smi.read_text() == ""


def test_locked_clocks_are_released_after_an_error(nvidia_smi):
    def fail():
        with conditions.locked_clocks(1500) as state:
            assert state == "locked to 1500 MHz"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert nvidia_smi.read_text().splitlines() == ["-i 0 -lgc 1500,1500", "-i 0 -rgc"]


def test_locked_clocks_are_released_when_the_process_is_asked_to_end(nvidia_smi):
    before = signal.getsignal(signal.SIGTERM)

    def end():
        with conditions.locked_clocks(1500):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit):
        end()
    assert nvidia_smi.read_text().splitlines()[-1] == "-i 0 -rgc"
    assert signal.getsignal(signal.SIGTERM) is before


def test_clocks_that_may_not_be_locked_are_said_to_be_unlocked(nvidia_smi):
    (nvidia_smi.parent / "refuse").touch()
    with conditions.locked_clocks(1500) as state:
        assert state == "unlocked: not permitted to lock 1500 MHz"
    assert "-rgc" not in nvidia_smi.read_text()


def test_clocks_of_a_windows_host_are_not_touched(nvidia_smi, monkeypatch):
    system = os.uname()
    release = (*system[:2], "5.15.0-microsoft-standard-WSL2", *system[3:])
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(release))
    with pytest.raises(UsageError, match="Windows"), conditions.locked_clocks(1500):
        pytest.fail("the clocks were locked")
    assert nvidia_smi.read_text() == ""
