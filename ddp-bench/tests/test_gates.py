import math

import pytest

from ddp_bench.coverage import Coverage
from ddp_bench.gates import judge_sane, meets_floor
from ddp_bench.results import FinalResult


def final(value, *, higher_is_better=True):
    metric = "accuracy" if higher_is_better else "mse"
    return FinalResult(train_loss=0.5, eval=value, metric=metric, higher_is_better=higher_is_better)


def test_sound_result_passes_every_check(make_result):
    gate = judge_sane(make_result())
    assert gate.verdict == "PASS"
    assert [(check.name, check.verdict) for check in gate.checks] == [
        (name, "PASS")
        for name in ("status", "epochs", "finite loss", "falling loss", "coverage", "floor")
    ]


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"epochs": []}, "epochs: 0 of 2"),
        ({"loss_curve": [[1, 1.0], [2, math.nan], [3, 0.5]]}, "finite loss: 1 of 5"),
        ({"loss_curve": [[1, 0.5], [2, 0.5]]}, "falling loss: mean of the first tenth 0.5000"),
        ({"loss_curve": [[1, 0.5]]}, "falling loss: 1 points"),
        ({"coverage": Coverage(expected=10, seen=9, duplicates=0)}, "coverage: 9 of 10"),
        ({"coverage": Coverage(expected=10, seen=10, duplicates=1)}, "coverage: 10 of 10"),
        ({"coverage": Coverage(expected=0, seen=0, duplicates=0)}, "coverage: 0 of 0"),
        ({"final": final(0.8599)}, "floor: accuracy 0.8599, floor >= 0.86"),
        ({"final": final(math.nan)}, "floor: accuracy nan"),
        ({"final": final(None)}, "floor: no evaluation"),
    ],
)
def test_each_fault_fails_its_check_with_the_numbers(make_result, changes, failure):
    gate = judge_sane(make_result(**changes))
    assert gate.verdict == "FAIL"
    assert any(text.startswith(failure) for text in gate.failures), gate.failures


def test_failed_cell_fails_with_its_reason(make_result):
    gate = judge_sane(make_result(status="failed", error="the loss became NaN"))
    assert gate.failures == ["status: failed: the loss became NaN"]


def test_other_amount_of_training_has_no_floor_but_the_rest_is_judged(make_result):
    gate = judge_sane(make_result(config={"floor": None}, final=final(0.1)))
    assert gate.verdict == "PASS"
    assert gate.checks[-1].verdict == "SKIP"


def test_first_and_last_tenth_decide_not_first_and_last_point(make_result):
    # The last point alone is above the first; the last two of twenty are well below.
    losses = [1.0, 1.2] + [0.5] * 16 + [0.0, 1.1]
    curve = [[step, loss] for step, loss in enumerate(losses, start=1)]
    assert judge_sane(make_result(loss_curve=curve)).verdict == "PASS"


@pytest.mark.parametrize(
    ("value", "higher_is_better", "met"),
    [
        (0.86, True, True),
        (0.8600001, True, True),
        (0.8599999, True, False),
        (0.86, False, True),
        (0.8600001, False, False),
        (math.nan, True, False),
        (math.nan, False, False),
    ],
)
def test_floor_itself_is_good_enough(value, higher_is_better, met):
    assert meets_floor(value, 0.86, higher_is_better=higher_is_better) is met
