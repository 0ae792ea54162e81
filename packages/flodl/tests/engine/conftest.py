"""Fixtures for steps on a GPU: deterministic kernels, and running a recipe in two modes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from flodl.data import Batch
from flodl.engine.step import TrainStep


@pytest.fixture
def exact_kernels():
    """Make the same step give the same bits twice."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = False, True, False
    matmul.allow_tf32 = False
    yield
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before


@dataclasses.dataclass
class Ran:
    """What a run left."""

    step: TrainStep
    losses: list[float]
    tensors: dict[str, torch.Tensor]


@pytest.fixture
def ran():
    """Return a function that trains a recipe and returns what came out.

    The recipe is ``() -> (model, optimizer, step function)``, called under one seed; batches come
    from ``batches(i)``; ``between(step, i)`` runs before step i.
    """

    def run(
        recipe: Callable[[], Any],
        batches: Callable[[int], Batch],
        count: int,
        *,
        between: Callable[[TrainStep, int], None] | None = None,
        **options: Any,
    ) -> Ran:
        torch.manual_seed(0)
        model, optimizer, step_fn = recipe()
        step = TrainStep(step_fn, model, optimizer, **options)
        torch.manual_seed(1)
        losses: list[float] = []
        with step.reporting_to(lambda record: losses.append(record.values[0])):
            for index in range(count):
                if between is not None:
                    between(step, index)
                step(batches(index))
            step.finish_window()
        return Ran(step, losses, everything(step))

    return run


def everything(step: TrainStep) -> dict[str, torch.Tensor]:
    """Return copies of all tensors that training has changed."""
    found = {name: t.detach().clone() for name, t in step.model.named_parameters()}
    found |= {name: t.detach().clone() for name, t in step.model.named_buffers()}
    for number, state in enumerate(step.optimizer.state.values()):
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                found[f"state {number} {key}"] = value.detach().clone()
    return found


@pytest.fixture
def same():
    """Return a function that asserts that two runs gave the same bits."""

    def check(one: Ran, other: Ran) -> None:
        assert one.losses == other.losses
        assert one.tensors.keys() == other.tensors.keys()
        different = [n for n in one.tensors if not torch.equal(one.tensors[n], other.tensors[n])]
        assert not different

    return check
