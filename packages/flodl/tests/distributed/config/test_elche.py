import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig, ElCheMode, ModeName


@pytest.mark.parametrize("mode", list(ElCheMode))
def test_each_mode_has_a_preset_of_its_name(mode):
    assert getattr(ElCheConfig, mode.value)() == ElCheConfig(mode=mode)


def test_the_default_is_nccl_cadence():
    assert ElCheConfig() == ElCheConfig.nccl_cadence()


def test_defaults_are_those_of_the_contract():
    cadence, sync = ElCheConfig.nccl_cadence(), ElCheConfig.nccl_sync()
    assert (cadence.initial_anchor, sync.initial_anchor) == (10, 1)
    assert (cadence.least_anchor, cadence.most_anchor) == (10, 1000)
    assert (cadence.overhead_target, cadence.gamma, cadence.snapshot_timeout) == (0.10, 1.0, 5.0)
    assert (cadence.meta_controller, cadence.relax_up, cadence.anchor_decay) == (True, False, False)
    assert (cadence.hierarchy, cadence.center, cadence.collective) == ("auto", "consensus", "nccl")
    assert [ElCheConfig(mode=mode).payload for mode in ElCheMode] == [
        "grads",
        "params",
        "params",
        "params",
        "snapshot",
    ]
    assert [ElCheConfig(mode=mode).alpha for mode in ElCheMode] == [None, None, None, None, 0.5]
    assert [ElCheConfig(mode=mode).is_progressive for mode in ElCheMode] == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_error_feedback_comes_with_bf16():
    assert ElCheConfig.cpu_cadence(bf16_wire=True).error_feedback
    assert not ElCheConfig.cpu_cadence().error_feedback
    assert not ElCheConfig.cpu_cadence(bf16_wire=True, wire_error_feedback=False).error_feedback


def test_a_copy_with_changes_is_checked_again():
    config = ElCheConfig.cpu_async(anchor=3).replace(easgd_alpha=0.7)
    assert (config.anchor, config.alpha) == (3, 0.7)
    with pytest.raises(ConfigError, match="easgd_alpha"):
        config.replace(easgd_alpha=2.0)


def test_alpha_elsewhere_is_ignored_with_a_warning(caplog):
    assert ElCheConfig.cpu_cadence(easgd_alpha=0.5).alpha is None
    assert "easgd_alpha=0.5 has no effect" in caplog.text


@pytest.mark.parametrize(
    ("preset", "options", "name"),
    [
        ("nccl_cadence", {"anchor": 0}, "anchor"),
        ("nccl_cadence", {"anchor": True}, "anchor"),
        ("nccl_cadence", {"anchor": 50, "max_anchor": 20}, "max_anchor"),
        ("nccl_cadence", {"min_anchor": 50, "max_anchor": 20}, "min_anchor"),
        ("nccl_cadence", {"overhead_target": 0}, "overhead_target"),
        ("nccl_cadence", {"gamma": -1}, "gamma"),
        ("nccl_cadence", {"max_batch_diff": -1}, "max_batch_diff"),
        ("nccl_cadence", {"speed_hint": (0, 0.4)}, "speed_hint"),
        ("nccl_cadence", {"speed_hint": (0,)}, "speed_hint"),
        ("nccl_cadence", {"hierarchy": "ring"}, "hierarchy"),
        ("nccl_cadence", {"hierarchy": "star"}, "hierarchy"),
        ("nccl_cadence", {"bf16_wire": True}, "bf16_wire"),
        ("nccl_sync", {"bf16_wire": True}, "bf16_wire"),
        ("nccl_cadence", {"partition_ratios": (1, 2)}, "partition_ratios"),
        ("cpu_sync", {"partition_ratios": (1, 0)}, "partition_ratios"),
        ("cpu_sync", {"progressive": True}, "progressive"),
        ("cpu_cadence", {"collective": "gloo"}, "collective"),
        ("cpu_cadence", {"max_overshoot": 3}, "max_overshoot"),
        ("cpu_cadence", {"sync_payload": "grads"}, "sync_payload"),
        ("cpu_async", {"easgd_alpha": 0}, "easgd_alpha"),
        ("cpu_async", {"snapshot_timeout": 0}, "snapshot_timeout"),
        ("cpu_async", {"deterministic": "always"}, "deterministic"),
        ("cpu_async", {"divergence_threshold": -0.1}, "divergence_threshold"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(preset, options, name):
    with pytest.raises(ConfigError, match=name):
        getattr(ElCheConfig, preset)(**options)


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        ElCheConfig.cpu_async(anchor=0, gamma=-1, center="middle")
    assert all(name in str(caught.value) for name in ("anchor", "gamma", "center"))


@pytest.mark.parametrize(
    ("pair", "mode"),
    [
        (("Sync", "Nccl"), ElCheMode.NCCL_SYNC),
        (("Cadence", "Cpu"), ElCheMode.CPU_CADENCE),
        (("Async", "Cpu"), ElCheMode.CPU_ASYNC),
    ],
)
def test_old_pairs_name_a_mode(pair, mode):
    assert ElCheMode.of(*pair) is mode


def test_the_pair_that_was_dropped_says_what_to_use():
    with pytest.raises(ConfigError, match="use cpu_async"):
        ElCheMode.of("Async", "Nccl")
    with pytest.raises(ConfigError, match="expected Sync, Cadence or Async"):
        ElCheMode.of("Eager", "Cpu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nccl-cadence", ModeName(mode=ElCheMode.NCCL_CADENCE)),
        ("cpu_async", ModeName(mode=ElCheMode.CPU_ASYNC)),
        ("gloo-sync", ModeName(mode=ElCheMode.NCCL_SYNC, collective="gloo")),
        ("cpu-async-diloco", ModeName(mode=ElCheMode.CPU_ASYNC, outer="diloco")),
        (
            "gloo-cadence-slowmo",
            ModeName(mode=ElCheMode.NCCL_CADENCE, collective="gloo", outer="slowmo"),
        ),
        ("solo-3", ModeName(mode=None, solo_device=3)),
    ],
)
def test_mode_strings_are_understood(text, expected):
    assert ModeName.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "solo", "solo-x", "nccl-async", "nccl-sync-diloco", "solo-0-slowmo"]
)
def test_other_mode_strings_are_refused(text):
    with pytest.raises(ConfigError, match="expected one of"):
        ModeName.parse(text)
