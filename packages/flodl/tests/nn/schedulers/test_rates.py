"""Rates at every boundary, and against torch's own schedulers."""

import math

import pytest
import torch

from flodl.nn.schedulers import (
    CosineScheduler,
    CyclicLR,
    ExponentialLR,
    MultiStepLR,
    OneCycleLR,
    SequentialScheduler,
    StepDecay,
    WarmupScheduler,
)


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        (StepDecay(1.0, 10, 0.1), {0: 1, 9: 1, 10: 0.1, 11: 0.1, 19: 0.1, 20: 0.01}),
        (ExponentialLR(2.0, 0.5), {0: 2, 1: 1, 2: 0.5, 10: 2 * 0.5**10}),
        (MultiStepLR(1.0, [20, 10], 0.5), {0: 1, 9: 1, 10: 0.5, 11: 0.5, 19: 0.5, 20: 0.25}),
        (MultiStepLR(1.0, [5, 5], 0.5), {4: 1, 5: 0.25, 6: 0.25}),
        (MultiStepLR(1.0, [], 0.5), {0: 1, 100: 1}),
        (
            CosineScheduler(1.0, 0.2, 100),
            {0: 1, 50: 0.6, 25: 0.2 + 0.4 * (1 + math.sqrt(0.5)), 100: 0.2, 110: 0.2},
        ),
        (
            OneCycleLR(25.0, 100),
            {0: 1, 15: 13, 29: 1 + 24 * 29 / 30, 30: 25, 65: 13, 100: 1, 110: 1},
        ),
        (OneCycleLR(25.0, 10, 0.0), {0: 25, 5: 13, 10: 1}),
        (OneCycleLR(25.0, 10, 1.0), {0: 1, 9: 22.6, 10: 25, 20: 25}),
        (CyclicLR(1.0, 3.0, 4), {0: 1, 2: 2, 4: 3, 6: 2, 8: 1, 10: 2}),
        (CyclicLR(1.0, 3.0, 4, 2), {0: 1, 3: 2.5, 4: 3, 5: 2, 6: 1, 8: 2}),
        (
            WarmupScheduler(StepDecay(1.0, 2, 0.5), 0.8, 4),
            {0: 0.2, 3: 0.8, 4: 1.0, 5: 1.0, 6: 0.5},
        ),
        (WarmupScheduler(ExponentialLR(1.0, 0.5), 1.0, 0), {0: 1, 1: 0.5}),
        (
            WarmupScheduler(WarmupScheduler(ExponentialLR(9.0, 0.5), 4.0, 2), 3.0, 3),
            {0: 1, 2: 3, 3: 2, 4: 4, 5: 9, 6: 4.5},
        ),
        (
            SequentialScheduler([(ExponentialLR(8.0, 0.5), 2), (StepDecay(3.0, 2, 0.1), 1)]),
            {0: 8, 1: 4, 2: 3, 3: 3, 4: 0.3, 6: 0.03},
        ),
        (ExponentialLR(8.0, 0.5) * 0.25, {0: 2, 1: 1}),
        (0.5 * ExponentialLR(8.0, 0.5), {0: 4, 1: 2}),
    ],
    ids=lambda value: repr(value) if not isinstance(value, dict) else "",
)
def test_the_rate_at_each_boundary(scheduler, expected):
    for step, rate in expected.items():
        assert scheduler.lr(step) == pytest.approx(rate, rel=1e-14), step


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (StepDecay(0.3, 7, 0.9), lambda opt, s: s.StepLR(opt, 7, 0.9)),
        (
            MultiStepLR(0.3, [5, 50, 50, 120], 0.5),
            lambda opt, s: s.MultiStepLR(opt, [5, 50, 50, 120], 0.5),
        ),
        (ExponentialLR(0.3, 0.99), lambda opt, s: s.ExponentialLR(opt, 0.99)),
        (
            CyclicLR(0.1, 0.3, 11, 5),
            lambda opt, s: s.CyclicLR(opt, 0.1, 0.3, 11, 5, cycle_momentum=False),
        ),
        (CyclicLR(0.1, 0.3, 8), lambda opt, s: s.CyclicLR(opt, 0.1, 0.3, 8, cycle_momentum=False)),
        (CosineScheduler(0.3, 0.01, 300), lambda opt, s: s.CosineAnnealingLR(opt, 300, 0.01)),
    ],
    ids=["step", "milestones", "exponential", "cyclic", "cyclic even", "cosine"],
)
def test_rates_are_torchs_over_300_steps(ours, theirs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = theirs(optimizer, torch.optim.lr_scheduler)
    for step in range(300):
        assert ours.lr(step) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-10), step
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(
    "scheduler",
    [
        StepDecay(1.0, 1, 0.5),
        OneCycleLR(1.0, 10),
        WarmupScheduler(StepDecay(1.0, 1, 0.5), 1.0, 5),
        StepDecay(1.0, 1, 0.5) * 2.0,
    ],
    ids=repr,
)
def test_a_negative_step_is_refused(scheduler):
    with pytest.raises(ValueError, match=r"lr\(-1\)"):
        scheduler.lr(-1)


@pytest.mark.parametrize(
    ("kind", "arguments", "named"),
    [
        (StepDecay, (1.0, 0, 0.5), "step_size=0"),
        (StepDecay, (1.0, 2.5, 0.5), "step_size=2.5"),
        (StepDecay, (1.0, True, 0.5), "step_size=True"),
        (StepDecay, (1.0, 1, 0.0), "gamma=0.0"),
        (StepDecay, (-1.0, 1, 0.5), "base_lr=-1.0"),
        (StepDecay, (math.nan, 1, 0.5), "base_lr=nan"),
        (ExponentialLR, (1.0, -0.5), "gamma=-0.5"),
        (ExponentialLR, (1.0, math.inf), "gamma=inf"),
        (MultiStepLR, (1.0, [-1], 0.5), "milestones=-1"),
        (MultiStepLR, (1.0, [1], 0.0), "gamma=0.0"),
        (CosineScheduler, (1.0, 0.0, 0), "total_steps=0"),
        (CosineScheduler, (1.0, -0.1, 5), "min_lr=-0.1"),
        (OneCycleLR, (1.0, -3), "total_steps=-3"),
        (OneCycleLR, (1.0, 3, 1.1), "warmup_frac=1.1"),
        (OneCycleLR, (1.0, 3, math.nan), "warmup_frac=nan"),
        (CyclicLR, (1.0, 2.0, 0), "step_size=0"),
        (CyclicLR, (1.0, 2.0, 1, 0), "step_size_down=0"),
        (WarmupScheduler, (StepDecay(1.0, 1, 1.0), 1.0, -1), "warmup_steps=-1"),
        (WarmupScheduler, (StepDecay(1.0, 1, 1.0), -1.0, 1), "target_lr=-1.0"),
        (SequentialScheduler, ([],), "at least one"),
        (SequentialScheduler, ([(StepDecay(1.0, 1, 1.0), 0)],), "steps=0"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:40],
)
def test_impossible_settings_are_refused_at_construction(kind, arguments, named):
    with pytest.raises(ValueError, match="must|needs") as caught:
        kind(*arguments)
    assert named in str(caught.value)
    assert kind.__name__ in str(caught.value)


def test_what_is_no_scheduler_cannot_be_wrapped():
    with pytest.raises(TypeError, match="must have a method lr"):
        WarmupScheduler(0.1, 0.1, 5)
    with pytest.raises(TypeError, match="must have a method lr"):
        SequentialScheduler([(0.1, 5)])
