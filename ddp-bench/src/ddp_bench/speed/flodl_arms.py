"""The arms of flodl that are more than a model: its Trainer and its captured step."""

from __future__ import annotations

import logging
from typing import Any, Self

import torch
from torch import Tensor, nn

from ddp_bench.speed.arms import BY_NAME
from ddp_bench.speed.rewrites import rewritten
from ddp_bench.speed.turns import Turns
from ddp_bench.speed.workload import Workload
from flodl import EpochMetrics, Trainer
from flodl.data import Batch, TensorDataSet
from flodl.engine.step import TrainStep

_ENDLESS = 1 << 30


class FallbackWatch(logging.Handler):
    """Keeps what flodl says about steps that run in a lower mode than asked for."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self._loggers = [logging.getLogger(f"flodl.engine.{n}") for n in ("fallback", "compile")]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.messages.append(record.getMessage())

    def __enter__(self) -> Self:
        for logger in self._loggers:
            logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self._loggers:
            logger.removeHandler(self)


def drive(workload: Workload, turns: Turns, facts: dict[str, Any]) -> None:
    """Train one of flodl's arms; whether it ran as it was to run goes into the facts."""
    arm, is_on_gpu = BY_NAME[workload.task.arm], workload.device.type == "cuda"
    with FallbackWatch() as watch:
        try:
            if arm.name == "flodl-step":
                _drive_step(workload, turns, facts)
            else:
                _drive_trainer(workload, turns)
        finally:
            if (is_on_gpu and arm.is_captured) or arm.is_compiled:
                reason = "; ".join(watch.messages)
                facts["capture"] = {"ok": not reason, "reason": reason or None}


def _drive_trainer(workload: Workload, turns: Turns) -> None:
    """Train with the Trainer: its loop, its loader, its reading of the losses."""
    arm = workload.task.arm
    model = rewritten(workload.plain()) if arm.startswith("flodl-rewritten") else workload.graph()
    has_targets = workload.batches[0][0] is not workload.batches[0][1]

    columns = [torch.cat([pair[i] for pair in workload.batches]).cpu() for i in (0, 1)]
    columns = columns if has_targets else columns[:1]
    workload.batches.clear()  # from here on the loader has them

    def train_step(model: nn.Module, batch: Batch) -> Tensor:
        return workload.model_def.loss(model(batch[0]), batch[1] if has_targets else batch[0])

    def end(metrics: EpochMetrics) -> None:
        turns.end(metrics.avg_loss, is_own_loop=False)

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        # on the CPU nothing chooses the fused step by itself, and torch's compiled arm has it
        return workload.adam(parameters, **({"fused": True} if arm == "flodl-compiled" else {}))

    builder = (
        Trainer.builder(lambda _: model, optimizer, train_step)
        .dataset(TensorDataSet(*columns))
        .batch_size(workload.batch_size)
        .num_epochs(_ENDLESS)
        .loader(shuffle=False)
        .devices([_with_index(workload.device)])
        .epoch_fn(lambda _: _begin(turns))
        .metrics_fn(end)
    )
    if arm == "flodl-trainer":
        builder = builder.capture("off")
    if BY_NAME[arm].is_compiled:
        builder = builder.compile()
    if workload.amp is not None:
        builder = builder.amp(workload.amp)
    builder.run()


def _begin(turns: Turns) -> None:
    turns.begin()


def _with_index(device: torch.device) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" else device


def _drive_step(workload: Workload, turns: Turns, facts: dict[str, Any]) -> None:
    """Train with ``TrainStep`` in a loop of the user's own."""
    model = workload.graph()
    step = TrainStep(
        lambda model, batch: workload.model_def.loss(model(batch[0]), batch[1]),
        model,
        workload.adam(model.parameters()),
        amp=workload.amp,
    )
    batches = [Batch(list(pair)) for pair in workload.batches]
    count = len(batches)
    try:
        while True:
            if turns.begin().policy == "step":
                turns.end(sum(turns.read(step(batch).loss) for batch in batches) / count)
            else:
                losses: list[float] = []
                with step.reporting_to(lambda record: losses.append(record.values[0])):  # noqa: B023
                    for batch in batches:
                        step(batch)
                turns.end(sum(losses) / count)
    finally:
        stats = step.stats()
        facts["captured_steps"], facts["eager_steps"] = stats.captured, stats.eager
        facts["device_ms"] = stats.device_ms
        facts["pool_mb"] = round(stats.pool_bytes / 2**20, 1)
