import math

import pytest
import torch
from torch import nn

from flodl.core.errors import CaptureError, CaptureMismatchError, ConfigError
from flodl.engine.equality import Difference, VerifyReport, verify_step
from flodl.engine.step import TrainStep


def report(captured, difference=0.0):
    return VerifyReport(
        steps=3,
        mode="captured",
        eager_losses=(3.0, 2.0, 1.0),
        captured_losses=captured,
        differences={"weight": Difference(difference, difference)},
    )


def test_equal_runs_are_equal():
    equal = report((3.0, 2.0, 1.0))
    assert equal.is_equal
    assert equal.first_difference is None
    equal.assert_close()


def test_the_worst_difference_and_the_first_step_are_named():
    with pytest.raises(CaptureMismatchError, match=r"the loss of step 1 .* from step 1 on"):
        report((3.0, 2.5, 1.0), difference=1e-3).assert_close(1e-2)
    with pytest.raises(CaptureMismatchError, match="weight differs by 0.5"):
        report((3.0, 2.0, 1.0), difference=0.5).assert_close()
    report((3.0, 2.0, 1.0), difference=0.5).assert_close(0.6)


def test_nan_is_never_close():
    with pytest.raises(CaptureMismatchError):
        report((3.0, math.nan, 1.0)).assert_close(1.0)


def test_without_batches_or_a_gpu_it_says_so():
    def make(capture):
        model = nn.Linear(1, 1)
        return TrainStep(
            lambda m, b: m(b[0]).sum(),
            model,
            torch.optim.SGD(model.parameters()),
            capture=capture,
        )

    with pytest.raises(ConfigError, match="batches is empty"):
        verify_step(make, [])
    with pytest.raises(CaptureError, match="no_gpu"):
        make("require")
