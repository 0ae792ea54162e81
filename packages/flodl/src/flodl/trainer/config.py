"""Everything a run can be told, and what must hold before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from flodl.core.errors import ConfigError
from flodl.data import BatchDataSet, DataSet, Sampler
from flodl.data.config import BatchTransform, Collate, LoaderConfig, Resident, WorkerMode
from flodl.data.storage import StorageDtype
from flodl.device.info import parse_device
from flodl.distributed.averaging.outer import OuterFactory
from flodl.distributed.averaging.plan import InnerState
from flodl.distributed.config import ElasticConfig, ElCheConfig
from flodl.distributed.controller.settings import OomPolicy
from flodl.distributed.launch.decision import LaunchChoice
from flodl.distributed.protocol.messages import CheckpointMode
from flodl.distributed.worker.worker import EpochFn
from flodl.engine.config import AnyScheduler, CaptureConfig, NonFinitePolicy, StepConfig
from flodl.engine.evaluate import EvalFn
from flodl.engine.padding import BucketSizes
from flodl.engine.schedules import GivenScheduler, check_scheduler
from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.monitor import Monitor
from flodl.monitor.timeline import Timeline
from flodl.records import Reduction, Sink
from flodl.trainer.policy import EpochCallbackPolicy
from flodl.trainer.watching import (
    DashboardOptions,
    RecordLogOptions,
    SavedDashboard,
    Watching,
)
from flodl.web.archive import Theme

MetricsFn = Callable[[EpochMetrics], None]
CheckpointFn = Callable[[int, torch.nn.Module], None]
EvalResultFn = Callable[[int, dict[str, float]], None]
AnyDataSet = DataSet | BatchDataSet


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderOptions:
    """Options handed on to the training ``DataLoader``; meanings are those of ``LoaderConfig``.

    ``names`` and ``collate`` are for the evaluation's loader as well. Transforms are not: they may
    draw random views, and ``eval_fn`` gets batches as the data set gives them.
    """

    shuffle: bool | None = None
    drop_last: bool = True
    names: Sequence[str] | None = None
    sampler: Sampler | None = None
    transform: BatchTransform | None = None
    device_transform: BatchTransform | None = None
    collate: Collate | None = None
    resident: Resident | None = None
    storage_dtype: StorageDtype | None = None
    streaming: bool = False
    prefetch: int | None = None
    workers: int = 1
    worker_mode: WorkerMode = "thread"
    timeout: float | None = None
    vram_max_usage: float = 0.90
    activation_reserve: int | None = None

    def problem(self) -> str | None:
        """Return what is wrong with the options, ``None`` when nothing is."""
        try:
            LoaderConfig(batch_size=1, **self.options())
        except ConfigError as error:
            return f"loader: {error}"
        return None

    def options(self) -> dict[str, Any]:
        """Return the options as keywords of a loader."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


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
    """Devices to train on, one a rank; ``None``: all GPUs, or the CPU."""
    ranks: int | None = None
    """Ranks on the CPU; each is a process with a share of the cores."""
    launch: LaunchChoice = "auto"
    """How ranks come to the program: by running it again (``"script"``), by pickle (``"spawn"``),
    or as threads of this process, for tests (``"thread"``)."""
    elche: ElCheConfig | None = None
    """When and how ranks average; ``None``: ``nccl_cadence`` on GPUs, ``cpu_cadence`` without."""
    elastic: ElasticConfig = field(default_factory=ElasticConfig)
    """Whether ranks may be lost, come back and join."""
    outer_optimizer: OuterFactory = None
    """Steps from one average to the next, as in DiLoCo; ``None``: the average is taken over."""
    inner_state: InnerState = "keep"
    """What an average does to the state of each rank's own optimizer."""
    lr_scale_ratio: float = 1.0
    """Rates are multiplied by ``1 + (ranks - 1) * ratio``."""
    epoch_splits: int = 1
    """Epochs that share one pass over the data."""
    epoch_callback_policy: EpochCallbackPolicy = field(default_factory=EpochCallbackPolicy.fastest)
    """Which rank evaluates and saves."""
    eval_parallel: bool = False
    """Share an evaluation among the ranks."""
    checkpoint_every_windows: int | None = None
    """With ranks: also save after every n-th average. One device makes none."""
    max_failures: int | None = None
    """Deaths of ranks that are tolerated; ``None``: any number."""
    oom_policy: OomPolicy = "split"
    """What a rank does whose memory runs out in a step: ``"split"`` takes batches in 2, 4 or 8
    parts from then on, with the same gradients, and where that does not do goes on as
    ``"evict"``, which gives the rank up as if it had died; ``"fail"`` ends the run. Alone, the
    last two raise."""
    loader: LoaderOptions = field(default_factory=LoaderOptions)
    augment: int = 1
    """Times that each sample is visited in an epoch, for data sets that draw a view of it."""
    scheduler: GivenScheduler | None = None
    """Learning rate by optimizer step, counted from 0; or what makes a schedule, from the number
    of ranks or from the ``optimizer``."""
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
    bucket_sizes: Mapping[str, BucketSizes] = field(default_factory=dict)
    """Tensors of batches, by name, that are padded to one of a few lengths."""
    passthrough: Sequence[str] = ()
    """Static fields of batches that are for others than the step."""
    on_nonfinite: NonFinitePolicy | Literal["quarantine"] | None = None
    """What a NaN or infinite loss does: ``"raise"`` ends the run, ``"warn"`` says so once,
    ``"skip"`` leaves out such steps, ``"quarantine"`` leaves a rank's window out of the average.
    ``None``: ``"quarantine"`` with ranks, ``"raise"`` without."""
    eval_fn: EvalFn | None = None
    eval_dataset: AnyDataSet | None = None
    eval_every: int = 1
    """Evaluate after every n-th epoch, and always after the last."""
    eval_result_fn: EvalResultFn | None = None
    epoch_fn: EpochFn | None = None
    """Called with the epoch's number before its first step there, on every rank; where it takes
    two arguments, with the rank's ``Worker`` as well."""
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
    reports_per_epoch: int = 0
    """Reports within each epoch; 0 for none."""
    timeline: Timeline | None = None
    """Started with the run, shown beside its records, and ended with it."""
    profile_graph: bool = False
    """Time the nodes of a graph model in a forward pass of its own at the end, and show them."""
    save_path: str | Path | None = None
    """Stem of the checkpoint; the model goes to ``<save_path>.fdl``, what a run goes on from
    beside it."""
    checkpoint_every: int | None = None
    """Also save after every n-th epoch."""
    checkpoint_at_epoch: Sequence[int] | int | None = None
    """Also save when so many epochs are finished."""
    checkpoint_fn: CheckpointFn | None = None
    """Called with the epoch's number and the model after each of these epochs."""
    checkpoint_mode: CheckpointMode = "full"
    """What ranks save: ``"full"``, from which any number of ranks goes on; ``"exact"``, with each
    rank's own state as well, from which as many ranks go on to the bit; ``"sharded"``, as full
    with the model written by all ranks at once."""
    checkpoint_keep: int | None = 3
    """Checkpoints numbered by epoch or window that stay, the newest ones; ``None``: all."""
    exact_strict: bool = False
    """Whether it is an error when ranks cannot go on exactly from an exact checkpoint; otherwise
    they go on as from a full one."""
    resume_from: str | Path | None = None
    """Go on from this checkpoint: a stem, a ``.meta.json`` file, or the newest of a folder."""

    @property
    def step_nonfinite(self) -> NonFinitePolicy:
        """What a step by itself does with a loss that is not finite."""
        if self.on_nonfinite is None or self.on_nonfinite == "quarantine":
            return "raise"
        return self.on_nonfinite

    def step_config(self, scheduler: AnyScheduler | None = None) -> StepConfig:
        """Return the part that the step owns.

        Args:
            scheduler: The schedule, made where a factory was given.

        Raises:
            ConfigError: A value is out of range.
        """
        return StepConfig(
            max_grad_norm=self.max_grad_norm,
            clip_value=self.clip_value,
            scheduler=scheduler,
            on_nonfinite=self.step_nonfinite,
            splits_oom=self.oom_policy == "split",
            amp=self.amp,
            scaler=self.scaler,
            accumulate=self.accumulate,
            compile=self.compile,
            bucket_sizes=self.bucket_sizes,
            passthrough=self.passthrough,
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
            reports_per_epoch=self.reports_per_epoch,
            timeline=self.timeline,
            profile_graph=self.profile_graph,
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
            check_scheduler(self.scheduler)
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
    names = ("batch_size", "num_epochs", "eval_every", "checkpoint_every", "augment")
    for name in (*names, "checkpoint_every_windows", "checkpoint_keep"):
        value = getattr(config, name)
        if value is None:
            continue
        if not is_count(value):
            problems.append(f"{name}={value!r}: must be a whole number of at least 1")
    modes = get_args(CheckpointMode)
    if config.checkpoint_mode not in modes:
        legal = ", ".join(map(repr, modes))
        problems.append(f"checkpoint_mode={config.checkpoint_mode!r}: must be one of {legal}")
    policies = get_args(OomPolicy)
    if config.oom_policy not in policies:
        legal = ", ".join(map(repr, policies))
        problems.append(f"oom_policy={config.oom_policy!r}: must be one of {legal}")
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
    if config.save_path is None and config.checkpoint_fn is None:
        problems += [
            f"{name} is set and save_path is not; set .save_path(...)"
            for name in _MOMENTS
            if getattr(config, name) is not None
        ]
    if config.checkpoint_fn is not None and not any(getattr(config, name) for name in _MOMENTS):
        problems.append(
            f"checkpoint_fn is set and none of {', '.join(_MOMENTS)}; it would never be called"
        )
    problems += _checkpoint_epochs(config)
    loader = config.loader.problem()
    if loader is not None:
        problems.append(loader)
    monitor, epochs = config.monitor, config.num_epochs
    if monitor is not None and epochs is not None and monitor.total_epochs != epochs:
        problems.append(
            f"monitor is for {monitor.total_epochs} epochs and num_epochs is {epochs}; "
            "give both the same number"
        )
    return problems


_MOMENTS = ("checkpoint_every", "checkpoint_every_windows", "checkpoint_at_epoch")
"""Settings that say when there are checkpoints besides the one at the end."""


def _checkpoint_epochs(config: TrainerConfig) -> list[str]:
    return [
        f"checkpoint_at_epoch={config.checkpoint_at_epoch!r}: must be counts of epochs from 1"
        for epoch in checkpoint_epochs(config)
        if not is_count(epoch)
    ][:1]


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def checkpoint_epochs(config: TrainerConfig) -> Sequence[int]:
    """Return the numbers of finished epochs at which ``checkpoint_at_epoch`` asks for one."""
    given = config.checkpoint_at_epoch
    if given is None:
        return ()
    return [given] if isinstance(given, int) else list(given)


def _devices(devices: object) -> list[str]:
    if devices is None:
        return []
    if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
        return [f'devices={devices!r}: must be a list, such as ["cpu"] or ["cuda:0", "cuda:1"]']
    problems = []
    for device in devices:
        try:
            parse_device(device)
        except ConfigError as error:
            problems.append(str(error))
    return problems
