import math

import pytest

from flodl.core.errors import ConfigError
from flodl.nn.schedulers import (
    ExponentialLR,
    PlateauScheduler,
    SequentialScheduler,
    StepDecay,
    WarmupScheduler,
)


def test_the_rate_falls_after_patience_observations_without_improvement():
    scheduler = PlateauScheduler(1.0, 2, 0.5, 0.2)
    rates = [scheduler.observe(value) for value in [5, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3]]
    assert rates == [1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]
    assert scheduler.lr() == scheduler.lr(17) == 0.2


def test_higher_is_better_in_max_mode():
    scheduler = PlateauScheduler(1.0, 1, 0.5, 0.0, mode="max")
    assert [scheduler.observe(value) for value in [1, 2, 2, 1, 3]] == [1, 1, 0.5, 0.25, 0.25]


def test_an_improvement_must_exceed_the_threshold():
    scheduler = PlateauScheduler(1.0, 1, 0.5, 0.0, threshold=0.5)
    assert [scheduler.observe(value) for value in [5.0, 4.5, 4.4]] == [1, 0.5, 0.5]


def test_nan_is_no_improvement_and_is_logged(caplog):
    scheduler = PlateauScheduler(1.0, 2, 0.5, 0.0)
    assert [scheduler.observe(value) for value in [math.nan, math.nan, 7.0, math.nan]] == [
        1,
        0.5,
        0.5,
        0.5,
    ]
    assert caplog.text.count("observed NaN") == 3


def test_within_a_warmup_the_ramp_comes_first_and_observations_pass_through():
    inner = PlateauScheduler(1.0, 1, 0.5, 0.0)
    scheduler = WarmupScheduler(inner, 1.0, 4)
    assert scheduler.is_reactive
    assert scheduler.lr(1) == 0.5
    assert [scheduler.observe(value) for value in [2.0, 3.0]] == [1.0, 0.5]
    assert scheduler.lr(1) == 0.5
    assert scheduler.lr(4) == scheduler.lr(400) == 0.5


def test_scaled_and_sequential_ones_pass_observations_on():
    scaled = PlateauScheduler(1.0, 1, 0.5, 0.0) * 4.0
    scaled.observe(1.0)
    assert scaled.observe(1.0) == 2.0
    sequence = SequentialScheduler(
        [(ExponentialLR(1.0, 0.5), 3), (PlateauScheduler(1.0, 1, 0.5, 0.0), 1)]
    )
    assert sequence.is_reactive
    sequence.observe(1.0)
    assert sequence.observe(1.0) == sequence.lr(3) == 0.5


def test_pure_schedulers_observe_nothing():
    for scheduler in (
        StepDecay(1.0, 1, 0.5),
        StepDecay(1.0, 1, 0.5) * 2,
        SequentialScheduler([(StepDecay(1.0, 1, 0.5), 1)]),
    ):
        assert not scheduler.is_reactive
        with pytest.raises(TypeError, match="depends on the step alone"):
            scheduler.observe(1.0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((1.0, 0, 0.5, 0.0), "patience=0"),
        ((1.0, 1, 0.0, 0.0), "factor=0.0"),
        ((1.0, 1, 1.0, 0.0), "factor=1.0"),
        ((1.0, 1, 0.5, -0.1), "min_lr=-0.1"),
        ((1.0, 1, 0.5, 2.0), "min_lr=2.0"),
        ((math.nan, 1, 0.5, 0.0), "base_lr=nan"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        PlateauScheduler(*arguments)
    with pytest.raises(ValueError, match="mode='low'"):
        PlateauScheduler(1.0, 1, 0.5, 0.0, mode="low")


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlateauScheduler(1.0, 2, 0.5, 0.0),
        lambda: WarmupScheduler(PlateauScheduler(1.0, 2, 0.5, 0.0), 1.0, 1),
        lambda: PlateauScheduler(1.0, 2, 0.5, 0.0) * 3.0,
        lambda: SequentialScheduler(
            [(StepDecay(1.0, 1, 0.5), 2), (PlateauScheduler(1.0, 2, 0.5, 0.0), 1)]
        ),
    ],
    ids=["plain", "warmup", "scaled", "sequential"],
)
def test_state_goes_on_where_it_was(make):
    scheduler = make()
    for value in (3.0, 4.0):
        scheduler.observe(value)
    other = make()
    other.load_state_dict(scheduler.state_dict())
    following = [3.5, 5.0, 2.0, 3.0, 3.0]
    assert [scheduler.observe(v) for v in following] == [other.observe(v) for v in following]


def test_the_state_of_other_settings_is_refused_and_changes_nothing():
    scheduler = PlateauScheduler(1.0, 1, 0.5, 0.0)
    other = PlateauScheduler(1.0, 2, 0.5, 0.0)
    other.observe(1.0)
    other.observe(1.0)
    with pytest.raises(ConfigError, match="'patience': 2"):
        scheduler.load_state_dict(other.state_dict())
    assert scheduler.lr() == 1.0
    with pytest.raises(ConfigError, match="belongs to the scheduler"):
        StepDecay(1.0, 1, 0.5).load_state_dict(ExponentialLR(1.0, 0.5).state_dict())
