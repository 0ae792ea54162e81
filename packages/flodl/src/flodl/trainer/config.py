"""Everything a run can be told, and what must hold before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from flodl.core.errors import ConfigError
from flodl.data import BatchDataSet, DataSet
from flodl.device.info import parse_device
from flodl.engine.config import CaptureConfig, NonFinitePolicy, Scheduler, StepConfig
from flodl.engine.evaluate import EvalFn
from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.monitor import Monitor
from flodl.records import Reduction, Sink
from flodl.trainer.watching import (
    DashboardOptions,
    RecordLogOptions,
    SavedDashboard,
    Watching,
)
from flodl.web.archive import Theme

MetricsFn = Callable[[EpochMetrics], None]
EpochFn = Callable[[int], None]
EvalResultFn = Callable[[int, dict[str, float]], None]
Transform = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
AnyDataSet = DataSet | BatchDataSet


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderOptions:
    """Options handed on to the training ``DataLoader``."""

    shuffle: bool = True
    drop_last: bool = True
    names: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """Settings of a run; each is also a setter of the builder.

    ``None`` means "decide for me". Cross-field checks run when the run starts, and report every
    problem at once.
    """

    dataset: AnyDataSet | None = None
    """Training data of known length. Required."""
    batch_size: int | None = None
    """Samples per step and rank. Required."""
    num_epochs: int | None = None
    """Passes over the data. Required."""
    seed: int = 42
    """Base of all random streams; the same seed gives the same run on one device."""
    devices: Sequence[str | torch.device] | None = None
    """Devices to train on; ``None``: the first GPU, or the CPU."""
    loader: LoaderOptions = field(default_factory=LoaderOptions)
    scheduler: Scheduler | None = None
    """Learning rate by optimizer step, counted from 0."""
    max_grad_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    """Batches whose gradients are averaged into one optimizer step."""
    amp: torch.dtype | None = None
    """Run forward and loss under autocast: ``torch.bfloat16`` or ``torch.float16``."""
    scaler: torch.amp.GradScaler | None = None
    """Scales the loss, for ``amp=torch.float16``."""
    capture: CaptureConfig = field(default_factory=CaptureConfig)
    """Whether steps on a GPU are captured as graphs; on by default."""
    compile: bool | Mapping[str, Any] = False
    """Compile the model; a map gives options of ``torch.compile``."""
    on_nonfinite: NonFinitePolicy = "raise"
    """What a NaN or infinite loss does: ``"raise"`` ends the run, ``"warn"`` says so once."""
    eval_fn: EvalFn | None = None
    eval_dataset: AnyDataSet | None = None
    eval_every: int = 1
    """Evaluate after every n-th epoch, and always after the last."""
    eval_result_fn: EvalResultFn | None = None
    epoch_fn: EpochFn | None = None
    """Called with the epoch's number before its first step."""
    metrics_fn: MetricsFn | None = None
    """Called once per epoch, in order. An exception in it is logged; the run goes on."""
    monitor: Monitor | None = None
    dashboard: DashboardOptions | None = None
    """Serve the live portal while the run goes on."""
    record_log: RecordLogOptions | None = None
    """Write every record to a tree of JSON-lines files."""
    save_dashboard: SavedDashboard | None = None
    """Save the whole portal as one offline file when the run ends, however it ends."""
    dashboard_theme: Theme = "auto"
    """Look that is pinned in the saved page."""
    scalar_reduction: Mapping[str, Reduction] = field(default_factory=dict)
    """How scalars roll up over ranks, by name; the mean unless said otherwise."""
    sinks: Sequence[Sink] = ()
    """Where records go as well, such as ``TensorBoardSink(...)``."""
    save_path: str | Path | None = None
    """Stem of the checkpoint; the model goes to ``<save_path>.fdl``."""
    checkpoint_every: int | None = None
    """Also save after every n-th epoch."""

    def step_config(self) -> StepConfig:
        """Return the part that the step owns.

        Raises:
            ConfigError: A value is out of range.
        """
        return StepConfig(
            max_grad_norm=self.max_grad_norm,
            clip_value=self.clip_value,
            scheduler=self.scheduler,
            on_nonfinite=self.on_nonfinite,
            amp=self.amp,
            scaler=self.scaler,
            accumulate=self.accumulate,
            compile=self.compile,
            capture=self.capture,
        )

    def watching(self) -> Watching:
        """Return the part that shows the run."""
        return Watching(
            dashboard=self.dashboard,
            record_log=self.record_log,
            save_dashboard=self.save_dashboard,
            dashboard_theme=self.dashboard_theme,
            scalar_reduction=self.scalar_reduction,
            sinks=self.sinks,
        )

    def validate(self) -> None:
        """Check every setting.

        Raises:
            ConfigError: At least one setting is missing or wrong; the message lists all.
        """
        problems = [
            *_missing(self),
            *_out_of_range(self),
            *_combinations(self),
            *_devices(self.devices),
            *self.watching().problems(),
        ]
        try:
            self.step_config()
        except ConfigError as error:
            problems.append(str(error))
        if problems:
            raise ConfigError("the run cannot start:\n" + "\n".join(f"  - {p}" for p in problems))


def _missing(config: TrainerConfig) -> list[str]:
    return [
        f"{name} is not set; call .{name}(...)"
        for name in ("dataset", "batch_size", "num_epochs")
        if getattr(config, name) is None
    ]


def _out_of_range(config: TrainerConfig) -> list[str]:
    problems = []
    for name in ("batch_size", "num_epochs", "eval_every", "checkpoint_every"):
        value = getattr(config, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problems.append(f"{name}={value!r}: must be a whole number of at least 1")
    for name in ("dataset", "eval_dataset"):
        dataset = getattr(config, name)
        if dataset is None:
            continue
        if not hasattr(dataset, "__len__"):
            problems.append(f"{name}={type(dataset).__name__}: must have a known length")
        elif len(dataset) == 0:
            problems.append(f"{name}: holds no samples")
    return problems


def _combinations(config: TrainerConfig) -> list[str]:
    problems = []
    if (config.eval_fn is None) != (config.eval_dataset is None):
        present, absent = (
            ("eval_dataset", "eval_fn") if config.eval_fn is None else ("eval_fn", "eval_dataset")
        )
        problems.append(f"{present} is set and {absent} is not; an evaluation needs both")
    if config.eval_result_fn is not None and config.eval_fn is None:
        problems.append("eval_result_fn is set and eval_fn is not; it would never be called")
    if config.checkpoint_every is not None and config.save_path is None:
        problems.append("checkpoint_every is set and save_path is not; set .save_path(...)")
    monitor, epochs = config.monitor, config.num_epochs
    if monitor is not None and epochs is not None and monitor.total_epochs != epochs:
        problems.append(
            f"monitor is for {monitor.total_epochs} epochs and num_epochs is {epochs}; "
            "give both the same number"
        )
    return problems


def _devices(devices: object) -> list[str]:
    if devices is None:
        return []
    if isinstance(devices, str) or not isinstance(devices, Sequence) or len(devices) != 1:
        return [
            f"devices={devices!r}: this version trains on one device; give a list of one, "
            'such as ["cpu"] or ["cuda:0"]'
        ]
    try:
        parse_device(devices[0])
    except ConfigError as error:
        return [str(error)]
    return []
