"""The program of flodl's arms: ``python -m ddp_bench.scaling.flodl_arm task.json``.

Launcher, controller and ranks all run it, as with any script of a user.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ddp_bench.errors import BenchError
from ddp_bench.scaling.link import is_slow
from ddp_bench.scaling.subject import PacedStep, Subject
from ddp_bench.scaling.task import Task
from ddp_bench.scaling.trace import read_steps, state_of
from flodl import ElCheConfig, RunInterrupted, Trainer
from flodl.distributed.averaging.outer import DiLoCo
from flodl.distributed.worker.worker import Worker
from flodl.trainer.handle import TrainHandle

MODES: dict[str, Callable[[], ElCheConfig]] = {
    "gloo-sync": lambda: ElCheConfig.nccl_sync(collective="gloo"),
    "gloo-cadence": lambda: ElCheConfig.nccl_cadence(collective="gloo"),
    "cpu-sync": ElCheConfig.cpu_sync,
    "cpu-cadence": ElCheConfig.cpu_cadence,
    "cpu-async": ElCheConfig.cpu_async,
    "cpu-async-diloco": ElCheConfig.cpu_async,
}
_BEGIN_S = 60.0
_ENDLESS = 1_000_000


class Observer:
    """Writes a copy of what all ranks share whenever that has changed.

    A rank that averages at every step is looked at now and then. One that takes an average over
    whole holds it when its parameters are not what its optimizer left, of which the smallest one
    tells, so that looking costs next to nothing. One that blends towards the average by ``alpha``
    holds ``(1 - alpha) * before + alpha * average``, which gives the average back.

    Args:
        task: What is run.
        config: How ranks average.
    """

    def __init__(self, task: Task, config: ElCheConfig) -> None:
        self._task, self._config = task, config
        self._steps = 0
        self._kept: Tensor | None = None

    def keep(self, model: nn.Module) -> None:
        """Remember a model as the optimizer left it, where averages change it in between."""
        if not self._config.mode.is_sync:
            self._kept = self._looked_at(model)

    def shared(self, model: nn.Module) -> list[Tensor] | None:
        """Return what all ranks share, before a step, if it is to be looked at."""
        self._steps += 1
        if self._config.mode.is_sync:
            is_due = self._steps > 1 and (self._steps - 1) % self._task.every == 0
            return state_of(model) if is_due else None
        now, before = self._looked_at(model), self._kept
        if before is None or torch.equal(now, before):
            return None
        alpha = self._config.alpha
        return state_of(model) if alpha is None else [before + (now - before) / alpha]

    def _looked_at(self, model: nn.Module) -> Tensor:
        if self._config.alpha is None:
            return min(model.parameters(), key=Tensor.numel).detach().clone()
        return _flat(model)


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in state_of(model)])


class Arm:
    """The user's side of a run: model, optimizer and step of one rank."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._subject = Subject.of(task)
        self._config = MODES[task.arm]()
        self._observer = Observer(task, self._config)
        self._step: PacedStep | None = None
        self._model: nn.Module | None = None

    def build(self, device: torch.device) -> nn.Module:
        """Make the model."""
        torch.set_num_threads(1)
        self._model = self._subject.build(device)
        return self._model

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """Make the optimizer, and see what each of its steps leaves."""
        optimizer = self._subject.optimizer(parameters)
        model = self._model
        assert model is not None
        optimizer.register_step_post_hook(lambda *_: self._observer.keep(model))
        return optimizer

    def enter(self, epoch: int, worker: Worker) -> None:  # noqa: ARG002 - called so by flodl
        """Learn which rank this is, before its first step."""
        if self._step is None:
            self._step = PacedStep(self._task, worker.rank, self._subject)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Take the forward pass of a step."""
        step = self._step
        assert step is not None
        step.begin()
        shared = self._observer.shared(model)
        if shared is not None:
            step.recorder.snapshot(shared)
        return step.loss(model, batch)

    def run(self) -> TrainHandle:
        """Start the run; controller and ranks never return from it."""
        builder = (
            Trainer.builder(self.build, self.optimizer, self.loss)
            .dataset(self._subject.data.train)
            .batch_size(self._subject.batch_size)
            .num_epochs(_ENDLESS)
            .seed(self._task.seed)
            .lr_scale_ratio(0.0)  # the same learning rate in all arms
            .ranks(self._task.ranks)
            .elche(self._config)
            .epoch_fn(self.enter)
        )
        if self._task.arm.endswith("-diloco"):
            builder = builder.outer_optimizer(DiLoCo())
        return builder.run()


def wait_for_steps(task: Task, limit_s: float, is_over: Callable[[], bool]) -> float:
    """Wait until a rank has taken its first step, and return when it began.

    Raises:
        BenchError: None did in time, or the run is over.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not is_over():
        begun = [
            steps[0].started for rank in range(task.ranks) if (steps := read_steps(task, rank))
        ]
        if begun:
            return min(begun)
        time.sleep(0.02)
    how = "before the run was over" if is_over() else f"within {limit_s:.0f} s"
    raise BenchError(f"{task.arm}: no rank took a step {how}")


def main() -> int:
    """Train for the time that the task says, and write what the run amounted to."""
    task = Task.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with task.link.applied() if is_slow(task.link) else contextlib.nullcontext():
        handle = Arm(task).run()  # ranks never return
    started = wait_for_steps(task, _BEGIN_S, lambda: handle.status().state in {"done", "failed"})
    time.sleep(max(0.0, started + task.run_s - time.monotonic()))
    handle.stop(save=False)
    with contextlib.suppress(RunInterrupted):
        handle.join(_BEGIN_S)
    report = handle.report
    outcome = {
        "windows": [dict(window) for window in report.windows],
        "finished": [metrics.epoch for metrics in handle.metrics()],
        "inexact": [account.epoch for account in report.accounting if not account.is_exact],
        "deaths": len(report.deaths),
    }
    task.outcome_file.write_text(json.dumps(outcome), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
