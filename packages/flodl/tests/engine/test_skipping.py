"""What is found to be not finite, in gradients of every kind."""

import pytest
import torch

from flodl import optim
from flodl.engine.skipping import NonFiniteGuard

KINDS = {
    "float32": torch.ones(5),
    "bfloat16": torch.ones(5, dtype=torch.bfloat16),
    "float64": torch.ones(2, 3, dtype=torch.float64),
    "scalar": torch.tensor(1.0),
    "complex": torch.ones(5, dtype=torch.complex64),
}
BAD = [float("nan"), float("inf"), -float("inf")]


@pytest.fixture
def guard():
    parameter = torch.nn.Parameter(torch.ones(1))
    made = NonFiniteGuard(
        optim.SGD([parameter], lr=0.1),
        torch.device("cpu"),
        skips=True,
        counts=True,
        asks_host=True,
        in_kernel=False,
    )
    made.saw(torch.tensor(1.0), starts_window=True)
    return made


@pytest.mark.parametrize("gradient", KINDS.values(), ids=KINDS)
def test_finite_gradients_are_no_reason_to_skip(guard, gradient):
    assert guard.found([gradient, torch.empty(0), -1e30 * torch.ones(3)]) == 0


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("gradient", KINDS.values(), ids=KINDS)
def test_one_value_that_is_not_finite_is_found(guard, gradient, bad):
    damaged = gradient.clone()
    damaged.view(-1)[-1] = bad
    assert guard.found([torch.ones(3), damaged]) == 1


def test_a_loss_that_is_not_finite_is_found_without_gradients(guard):
    guard.saw(torch.tensor(float("nan")), starts_window=True)
    assert guard.found([]) == 1
