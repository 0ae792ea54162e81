import dataclasses

import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElasticConfig, Timeouts

DEFAULTS = {
    "heartbeat": 2, "suspect": 10, "dead": 30, "host_lease": 25, "fence_ack": 5,
    "reduce_floor": 30, "snapshot": 5, "join_window": 300, "join_cap": 600, "drain": 30,
    "terminate": 10, "join_handshake": 10, "boot": 180, "formation": 60, "barrier_floor": 60,
    "stall": 300, "eval_callback": 1800, "checkpoint_callback": 600, "ping": 5,
    "reconnect_cap": 5, "controller_grace": 120, "quorum_wait": 600,
}  # fmt: skip


def test_defaults_are_those_of_the_contract():
    assert dataclasses.asdict(Timeouts()) == DEFAULTS


def test_every_timeout_scales():
    scaled = Timeouts().scaled_by("0.5")
    assert dataclasses.asdict(scaled) == {name: value / 2 for name, value in DEFAULTS.items()}
    assert Timeouts().scaled_by(None) == Timeouts()


@pytest.mark.parametrize("text", ["0", "-1", "fast", "nan", "inf"])
def test_a_scale_that_is_no_positive_number_is_refused(text):
    with pytest.raises(ConfigError, match="positive number"):
        Timeouts().scaled_by(text)


def test_derived_timeouts_follow_predictions():
    timeouts = Timeouts()
    assert (timeouts.barrier(1), timeouts.barrier(10)) == (60, 200)
    assert (timeouts.reduce(1), timeouts.reduce(10)) == (30, 100)


def test_a_host_must_stop_before_its_work_is_given_away():
    with pytest.raises(ConfigError, match="must rise"):
        Timeouts(host_lease=30)
    with pytest.raises(ConfigError, match="heartbeat"):
        Timeouts(heartbeat=0)


def test_elastic_defaults_are_those_of_the_contract():
    assert dataclasses.asdict(ElasticConfig()) == {
        "min_ranks": 1, "max_ranks": None, "rejoin": True, "respawn": 2,
        "controller_grace": 120, "on_user_exception": "fail", "quorum_wait": 600,
        "join_optimizer": "donor", "grow_interval": 10, "durable_every": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"min_ranks": 0},
        {"min_ranks": 3, "max_ranks": 2},
        {"respawn": -1},
        {"on_user_exception": "retry"},
        {"join_optimizer": "average"},
        {"quorum_wait": 0},
        {"durable_every": 0},
    ],
)
def test_elastic_settings_out_of_range_are_refused(options):
    with pytest.raises(ConfigError):
        ElasticConfig(**options)
