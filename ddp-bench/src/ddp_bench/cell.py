"""One cell: a model in a mode, trained through the public Trainer, its files in its folder."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import torch

from ddp_bench.coverage import CoverageTally, indexed
from ddp_bench.data.source import Source, TaskData
from ddp_bench.definition import DataFacts, ModelDef, Setup
from ddp_bench.environment import describe_environment, rank_line
from ddp_bench.errors import RunFolderError
from ddp_bench.learning_rate import LearningRate
from ddp_bench.modes import SoloMode
from ddp_bench.recorder import RunRecorder
from ddp_bench.results import (
    CellConfig,
    CellResult,
    EpochResult,
    FinalResult,
    WallTimes,
    dump_json,
    thin_curve,
)
from ddp_bench.run_folder import CHECKPOINT, LOG, RESULT, TIMELINES, RunFolder
from ddp_bench.training_log import LogEpoch, TrainingLog, format_log
from ddp_bench.watch import Watch
from flodl import (
    EpochMetrics,
    FlodlError,
    Monitor,
    NonFiniteError,
    StepContractError,
    Trainer,
)
from flodl.checkpoint.files import os_error_hint, write_atomically
from flodl.monitor import Timeline

_logger = logging.getLogger(__name__)
_TEXT_BYTES = 1 << 18  # log, result and the checkpoint's header, generously


@dataclass(frozen=True, kw_only=True, slots=True)
class CellPlan:
    """Everything that decides what a cell does."""

    definition: ModelDef
    setup: Setup
    mode: SoloMode
    source: Source
    seed: int
    epochs: int
    rate: LearningRate
    device: torch.device
    folder: RunFolder
    watch: Watch = field(default_factory=Watch)

    @property
    def name(self) -> str:
        """Model and mode, as messages call the cell."""
        return f"{self.definition.name}/{self.mode.name}"

    @property
    def floor(self) -> float | None:
        """The set-up's floor, where this is that set-up and no shorter or other one."""
        as_set_up = self.epochs == self.setup.epochs and self.rate.note is None
        return self.setup.floor if as_set_up else None


def run_cell(plan: CellPlan, data: TaskData, *, stream: TextIO) -> CellResult:
    """Train, evaluate after each epoch, and write the cell's files.

    A loss that is no longer finite, or an exception of the model's own code, gives a result of
    status ``failed``. On any other error and on Ctrl-C the folder stays as it was.

    Args:
        plan: What to do.
        data: The data of the plan's set-up.
        stream: Where epoch lines go.

    Raises:
        RunFolderError: The folder cannot be written.
        CheckpointError: The model cannot be written.
    """
    tally = CoverageTally(len(data.train), plan.setup.batch_size)
    recorder = RunRecorder(plan.definition, data.facts, tally)
    timeline = Timeline(spill=False)
    error: str | None = None
    started = time.perf_counter()
    with plan.folder.staging() as staged:
        try:
            _train(plan, data, recorder, staged, stream, timeline)
        except (NonFiniteError, StepContractError) as problem:
            error = str(problem)
        except (FlodlError, OSError):
            raise
        except Exception as problem:
            _logger.exception("%s failed", plan.name)
            error = f"{type(problem).__name__}: {problem}"
        total_s = time.perf_counter() - started
        _save_timeline(timeline, staged)
        result = _result(plan, data.facts, recorder, total_s, error)
        _write(staged / LOG, format_log(_log(plan, result)))
        _write(staged / RESULT, dump_json(result.as_json()))
    return result


def _train(
    plan: CellPlan,
    data: TaskData,
    recorder: RunRecorder,
    staged: Path,
    stream: TextIO,
    timeline: Timeline,
) -> None:
    definition = plan.definition

    def build(device: torch.device) -> torch.nn.Module:
        model = recorder.build(device)
        state = [*model.parameters(), *model.buffers()]
        plan.folder.require_space(sum(t.nbytes for t in state) + _TEXT_BYTES)
        return model

    builder = (
        Trainer.builder(
            build,
            lambda parameters: definition.optimizer(parameters, plan.rate.value),
            recorder.train_step,
        )
        .dataset(indexed(data.train))
        .batch_size(plan.setup.batch_size)
        .num_epochs(plan.epochs)
        .seed(plan.seed)
        .devices([plan.device])
        .eval_dataset(data.test)
        .eval_fn(lambda model, batch, _: {definition.metric: definition.eval_step(model, batch)})
        .monitor(Monitor(plan.epochs, stream=stream))
        .metrics_fn(recorder.end_epoch)
        .save_path(staged / Path(CHECKPOINT).stem)
    )
    if definition.schedule is not None:
        steps_per_epoch = len(data.train) // plan.setup.batch_size
        builder = builder.scheduler(definition.schedule(plan.rate.value, steps_per_epoch))
    if definition.clip_value is not None:
        builder = builder.clip_value(definition.clip_value)
    plan.watch.apply(builder, staged=staged, cell=plan.name, timeline=timeline).run()


def _save_timeline(timeline: Timeline, folder: Path) -> None:
    timeline.stop()  # a training that could not begin has left it running
    as_json, as_csv, as_page = TIMELINES
    timeline.save_json(folder / as_json)
    timeline.save_csv(folder / as_csv)
    timeline.save_html(folder / as_page)


def _result(
    plan: CellPlan, facts: DataFacts, recorder: RunRecorder, total_s: float, error: str | None
) -> CellResult:
    definition, epochs = plan.definition, recorder.epochs
    last = epochs[-1] if epochs else None
    return CellResult(
        model=definition.name,
        mode=plan.mode.name,
        profile="mini" if plan.source == "mini" else "full",
        seed=plan.seed,
        world=1,
        device_class="cuda" if plan.device.type == "cuda" else "cpu",
        status="complete" if error is None else "failed",
        error=error,
        config=_config(plan),
        data=facts,
        init_hash=recorder.init_hash,
        epochs=[_epoch(metrics, definition) for metrics in epochs],
        loss_curve=thin_curve(recorder.losses()),
        final=FinalResult(
            train_loss=None if last is None else last.avg_loss,
            eval=None if last is None else _evaluation(last, definition),
            metric=definition.metric,
            higher_is_better=definition.higher_is_better,
        ),
        coverage=recorder.coverage(),
        wall=WallTimes(
            train_only_s=sum(metrics.epoch_ms for metrics in epochs) / 1000,
            eval_s=sum(metrics.eval_ms or 0.0 for metrics in epochs) / 1000,
            total_s=total_s,
        ),
        env=describe_environment(plan.device),
    )


def _config(plan: CellPlan) -> CellConfig:
    return CellConfig(
        epochs=plan.epochs,
        batch_size=plan.setup.batch_size,
        lr=plan.rate.value,
        lr_note=plan.rate.note,
        clip_value=plan.definition.clip_value,
        floor=plan.floor,
        device=str(plan.device),
        threads=torch.get_num_threads(),
        source=plan.source,
        seq_len=plan.setup.data.seq_len,
        characters=plan.setup.data.characters,
        save_dashboard=plan.watch.save_dashboard,
        dashboard_theme=plan.watch.dashboard_theme,
        record_log=None if plan.watch.record_log is None else str(plan.watch.record_log),
        reports_per_epoch=plan.watch.reports_per_epoch,
        monitor=plan.watch.monitor,
    )


def _epoch(metrics: EpochMetrics, definition: ModelDef) -> EpochResult:
    return EpochResult(
        epoch=metrics.epoch,
        loss=metrics.avg_loss,
        eval=_evaluation(metrics, definition),
        scalars=metrics.scalars,
        wall_ms=metrics.epoch_ms,
        eval_ms=metrics.eval_ms,
        share=[samples / max(1, metrics.samples_processed) for samples in metrics.per_rank_samples],
        tput=metrics.per_rank_throughput,
    )


def _evaluation(metrics: EpochMetrics, definition: ModelDef) -> float | None:
    return None if metrics.eval is None else metrics.eval[definition.metric]


def _log(plan: CellPlan, result: CellResult) -> TrainingLog:
    return TrainingLog(
        ranks=(rank_line(plan.device),),
        epochs=tuple(
            LogEpoch(
                epoch=epoch.epoch,
                loss=epoch.loss,
                train_s=epoch.wall_ms / 1000,
                evaluation=epoch.eval,
                eval_s=None if epoch.eval_ms is None else epoch.eval_ms / 1000,
                scalars=epoch.scalars,
            )
            for epoch in result.epochs
        ),
        final_eval=result.final.eval,
        train_only_s=result.wall.train_only_s,
        eval_s=result.wall.eval_s,
        total_s=result.wall.total_s,
    )


def _write(path: Path, text: str) -> None:
    try:
        with write_atomically(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise RunFolderError(
            f"{path}: it cannot be written: {error.strerror}", hint=os_error_hint(error)
        ) from error
