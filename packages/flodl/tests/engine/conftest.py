"""Fixtures for steps on a GPU: deterministic kernels, and running a recipe in two modes."""

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flodl.data import Batch
from flodl.engine.output import StepOutput
from flodl.engine.step import TrainStep
from flodl.optim import Adam


@pytest.fixture
def exact_kernels():
    """Make the same step give the same bits twice."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = False, True, False
    matmul.allow_tf32 = False
    yield
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before


@pytest.fixture
def simulated_gpu(monkeypatch):
    """Let steps on the CPU be captured as tapes; returns an optimizer made for that."""
    path = Path(__file__).with_name("simulated_gpu.py")
    spec = importlib.util.spec_from_file_location("simulated_gpu", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.install(monkeypatch)


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.cuda)])
def place(request):
    """Where steps are captured: its ``device``, an ``optimizer`` for it, and ``batches(i)``."""
    if request.param == "cuda":
        request.getfixturevalue("exact_kernels")
        device, optimizer = torch.device("cuda"), Adam
    else:
        device, optimizer = torch.device("cpu"), request.getfixturevalue("simulated_gpu").SGD

    def batches(index, rows=16):
        generator = torch.Generator().manual_seed(index)
        tensors = [
            torch.randn(rows, size, generator=generator, dtype=torch.float32) for size in (8, 4)
        ]
        return Batch(tensors, index=index, epoch=index // 7).to(device)

    return SimpleNamespace(device=device, optimizer=optimizer, batches=batches)


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
    from ``batches(i)``; ``between(step, i)`` runs before step i, and ``each(output)`` after it.
    """

    def run(
        recipe: Callable[[], Any],
        batches: Callable[[int], Batch],
        count: int,
        *,
        between: Callable[[TrainStep, int], None] | None = None,
        each: Callable[[StepOutput], Any] = lambda output: None,
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
                each(step(batches(index)))
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
