"""The call that trains: a builder that fills a configuration, and the run it starts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import torch

from flodl.core.errors import ConfigError
from flodl.data import Sampler
from flodl.data.config import BatchTransform, Collate, Resident, WorkerMode
from flodl.data.storage import StorageDtype
from flodl.distributed.averaging.outer import OuterFactory
from flodl.distributed.averaging.plan import InnerState
from flodl.distributed.config import ElasticConfig, ElCheConfig
from flodl.distributed.controller.settings import OomPolicy
from flodl.distributed.launch.decision import LaunchChoice
from flodl.distributed.protocol.messages import CheckpointMode
from flodl.distributed.worker.worker import EpochFn, Worker
from flodl.engine.config import (
    CaptureConfig,
    CapturePolicy,
    ModelFactory,
    NonFinitePolicy,
    OptimFactory,
    PartialPolicy,
    TrainStepFn,
    Verify,
)
from flodl.engine.evaluate import EvalFn
from flodl.engine.padding import BucketSizes
from flodl.engine.schedules import GivenScheduler
from flodl.monitor.monitor import Monitor
from flodl.monitor.timeline import Timeline
from flodl.records import Reduction, Sink
from flodl.trainer.config import (
    AnyDataSet,
    CheckpointFn,
    EvalResultFn,
    LoaderOptions,
    MetricsFn,
    TrainerConfig,
)
from flodl.trainer.cooperative import open_worker
from flodl.trainer.handle import TrainHandle
from flodl.trainer.old_settings import OldSettings, with_old_settings
from flodl.trainer.policy import EpochCallbackPolicy
from flodl.trainer.ranks.call import run_anywhere
from flodl.trainer.ranks.spec import RunSpec
from flodl.trainer.setup import Setup
from flodl.trainer.solo import SoloRun
from flodl.trainer.watching import DashboardOptions, RecordLogOptions, SavedDashboard
from flodl.web.archive import Theme

_logger = logging.getLogger(__name__)


class TrainerBuilder(OldSettings):
    """Fills a :class:`TrainerConfig` setting by setting; :meth:`run` starts the run.

    Each setter takes the value of the configuration field of its name.
    """

    def __init__(
        self,
        model_factory: ModelFactory,
        optim_factory: OptimFactory,
        train_step: TrainStepFn | None = None,
    ) -> None:
        self._factories = (model_factory, optim_factory, train_step)
        self.config = TrainerConfig()

    def dataset(self, dataset: AnyDataSet) -> Self:
        """Train on this data set."""
        return self._set(dataset=dataset)

    def batch_size(self, count: int) -> Self:
        """Take this many samples per step and rank."""
        return self._set(batch_size=count)

    def num_epochs(self, count: int) -> Self:
        """Go over the data this many times."""
        return self._set(num_epochs=count)

    def seed(self, seed: int) -> Self:
        """Derive all random streams from this number (42 unless set)."""
        return self._set(seed=seed)

    def devices(self, devices: Sequence[str | torch.device]) -> Self:
        """Train on these devices instead of choosing."""
        return self._set(devices=devices)

    def loader(  # noqa: PLR0913 - one argument for each option of a loader
        self,
        *,
        shuffle: bool | None = None,
        drop_last: bool = True,
        names: Sequence[str] | None = None,
        sampler: Sampler | None = None,
        transform: BatchTransform | None = None,
        device_transform: BatchTransform | None = None,
        collate: Collate | None = None,
        resident: Resident | None = None,
        storage_dtype: StorageDtype | None = None,
        streaming: bool = False,
        prefetch: int | None = None,
        workers: int = 1,
        worker_mode: WorkerMode = "thread",
        timeout: float | None = None,
        vram_max_usage: float = 0.90,
        activation_reserve: int | None = None,
    ) -> Self:
        """Set options of the training loader; meanings are those of ``LoaderConfig``."""
        return self._set(
            loader=LoaderOptions(
                shuffle=shuffle,
                drop_last=drop_last,
                names=names,
                sampler=sampler,
                transform=transform,
                device_transform=device_transform,
                collate=collate,
                resident=resident,
                storage_dtype=storage_dtype,
                streaming=streaming,
                prefetch=prefetch,
                workers=workers,
                worker_mode=worker_mode,
                timeout=timeout,
                vram_max_usage=vram_max_usage,
                activation_reserve=activation_reserve,
            )
        )

    def augment(self, views: int) -> Self:
        """Visit each sample this many times in an epoch."""
        return self._set(augment=views)

    def scheduler(self, scheduler: GivenScheduler) -> Self:
        """Set the learning rate of every step from ``scheduler.lr(step)``.

        Or give what makes the schedule: ``(world_size) -> schedule``, or ``(optimizer) ->
        schedule`` for one of torch.
        """
        return self._set(scheduler=scheduler)

    def max_grad_norm(self, norm: float) -> Self:
        """Scale gradients so that their joint 2-norm is at most ``norm``."""
        return self._set(max_grad_norm=norm)

    def clip_value(self, value: float) -> Self:
        """Clamp each gradient element to plus or minus ``value``."""
        return self._set(clip_value=value)

    def accumulate(self, batches: int) -> Self:
        """Average the gradients of this many batches into one optimizer step."""
        return self._set(accumulate=batches)

    def amp(self, dtype: torch.dtype) -> Self:
        """Run forward and loss under autocast, in ``torch.bfloat16`` or ``torch.float16``."""
        return self._set(amp=dtype)

    def scaler(self, scaler: torch.amp.GradScaler) -> Self:
        """Scale the loss, for ``torch.float16``."""
        return self._set(scaler=scaler)

    def capture(
        self,
        mode: CapturePolicy = "auto",
        *,
        warmup: int = 3,
        verify: Verify = "first",
        max_graphs: int = 16,
        partial: PartialPolicy = "auto",
        metrics_ring: int = 256,
        steps_per_replay: int = 1,
    ) -> Self:
        """Say whether and how steps on a GPU are captured as graphs.

        Raises:
            ConfigError: A value is out of range.
        """
        return self._set(
            capture=CaptureConfig(
                mode=mode,
                warmup=warmup,
                verify=verify,
                max_graphs=max_graphs,
                partial=partial,
                metrics_ring=metrics_ring,
                steps_per_replay=steps_per_replay,
            )
        )

    def compile(self, options: bool | Mapping[str, Any] = True) -> Self:
        """Compile the model; a map gives options of ``torch.compile``."""
        return self._set(compile=options)

    def bucket_sizes(self, sizes: Mapping[str, BucketSizes]) -> Self:
        """Pad tensors of batches, by name, to one of a few lengths."""
        return self._set(bucket_sizes=sizes)

    def passthrough(self, names: Sequence[str]) -> Self:
        """Keep these static fields of batches from the step, and out of its signature."""
        return self._set(passthrough=names)

    def on_nonfinite(self, policy: NonFinitePolicy | Literal["quarantine"]) -> Self:
        """Say what a NaN or infinite loss does."""
        return self._set(on_nonfinite=policy)

    def eval_fn(self, function: EvalFn) -> Self:
        """Evaluate with ``(model, batch, context) -> value or {name: value}``."""
        return self._set(eval_fn=function)

    def eval_dataset(self, dataset: AnyDataSet) -> Self:
        """Evaluate on this data set, every sample exactly once."""
        return self._set(eval_dataset=dataset)

    def eval_every(self, epochs: int) -> Self:
        """Evaluate after every n-th epoch, and always after the last."""
        return self._set(eval_every=epochs)

    def eval_result_fn(self, function: EvalResultFn) -> Self:
        """Call ``(epoch, {name: value})`` after each evaluation."""
        return self._set(eval_result_fn=function)

    def epoch_fn(self, function: EpochFn) -> Self:
        """Call ``function(epoch)`` before the first step of each epoch."""
        return self._set(epoch_fn=function)

    def metrics_fn(self, function: MetricsFn) -> Self:
        """Call ``function(metrics)`` once per epoch."""
        return self._set(metrics_fn=function)

    def monitor(self, monitor: Monitor) -> Self:
        """Report each epoch to this monitor, and finish it at the end."""
        return self._set(monitor=monitor)

    def dashboard(
        self, port: int = 3000, *, host: str | None = None, token: str | None = None
    ) -> Self:
        """Serve the live portal while the run goes on; port 0 picks a free one."""
        return self._set(dashboard=DashboardOptions(port=port, host=host, token=token))

    def record_log(self, folder: str | Path, max_bytes: int = 0) -> Self:
        """Write every record below ``folder``, at most ``max_bytes`` per node (0: 32 MiB)."""
        return self._set(record_log=RecordLogOptions(folder=folder, max_bytes=max_bytes))

    def save_dashboard(self, path: str | Path, *, every: float | None = None) -> Self:
        """Save the portal as one offline file at the end, and every so many seconds."""
        return self._set(save_dashboard=SavedDashboard(path=path, every=every))

    def dashboard_theme(self, theme: Theme) -> Self:
        """Pin the look of the saved page."""
        return self._set(dashboard_theme=theme)

    def scalar_reduction(self, name: str, reduction: Reduction) -> Self:
        """Say how a scalar rolls up over ranks; may be called once per name."""
        known = self.config.scalar_reduction
        return self._set(scalar_reduction={**known, name: reduction})

    def sinks(self, sinks: Sequence[Sink]) -> Self:
        """Send the records to these as well."""
        return self._set(sinks=sinks)

    def reports_per_epoch(self, count: int) -> Self:
        """Report this often within each epoch."""
        return self._set(reports_per_epoch=count)

    def timeline(self, timeline: Timeline) -> Self:
        """Start this timeline with the run, and show it beside the records."""
        return self._set(timeline=timeline)

    def profile_graph(self, on: bool = True) -> Self:
        """Show what the nodes of a graph model cost, timed in a forward pass at the end."""
        return self._set(profile_graph=on)

    def save_path(self, stem: str | Path) -> Self:
        """Write the model to ``<stem>.fdl`` at the end."""
        return self._set(save_path=stem)

    def checkpoint_every(self, epochs: int) -> Self:
        """Also save after every n-th epoch, to ``<stem>-epoch<number>``."""
        return self._set(checkpoint_every=epochs)

    def checkpoint_at_epoch(self, epochs: Sequence[int] | int) -> Self:
        """Also save when so many epochs are finished."""
        return self._set(checkpoint_at_epoch=epochs)

    def checkpoint_fn(self, function: CheckpointFn) -> Self:
        """Call ``(epoch, model)`` after each of these epochs."""
        return self._set(checkpoint_fn=function)

    def checkpoint_mode(self, mode: CheckpointMode) -> Self:
        """Say what ranks save: ``"full"``, ``"exact"`` or ``"sharded"``."""
        return self._set(checkpoint_mode=mode)

    def checkpoint_keep(self, count: int | None) -> Self:
        """Say how many numbered checkpoints stay, the newest ones; ``None``: all."""
        return self._set(checkpoint_keep=count)

    def exact_strict(self, on: bool = True) -> Self:
        """Raise where ranks cannot go on exactly from an exact checkpoint."""
        return self._set(exact_strict=on)

    def resume_from(self, path: str | Path) -> Self:
        """Go on from a checkpoint: a stem, a ``.meta.json`` file, or the newest of a folder."""
        return self._set(resume_from=path)

    def ranks(self, count: int) -> Self:
        """Train on this many ranks of the CPU, each a process with a share of the cores."""
        return self._set(ranks=count)

    def launch(self, how: LaunchChoice) -> Self:
        """Say how ranks come to the program: ``"script"``, ``"spawn"`` or ``"auto"``."""
        return self._set(launch=how)

    def elche(self, config: ElCheConfig) -> Self:
        """Say when and how ranks average, such as ``ElCheConfig.cpu_async()``."""
        return self._set(elche=config)

    def elastic(self, config: ElasticConfig) -> Self:
        """Say whether ranks may be lost, come back and join."""
        return self._set(elastic=config)

    def outer_optimizer(self, factory: OuterFactory) -> Self:
        """Step from one average to the next with an optimizer of its own, as DiLoCo does."""
        return self._set(outer_optimizer=factory)

    def inner_state(self, policy: InnerState) -> Self:
        """Say what an average does to each rank's optimizer: keep, reset or average its state."""
        return self._set(inner_state=policy)

    def lr_scale_ratio(self, ratio: float) -> Self:
        """Multiply rates by ``1 + (ranks - 1) * ratio``; 0 leaves them alone."""
        return self._set(lr_scale_ratio=ratio)

    def epoch_splits(self, count: int) -> Self:
        """Make this many epochs of each pass over the data."""
        return self._set(epoch_splits=count)

    def epoch_callback_policy(self, policy: EpochCallbackPolicy) -> Self:
        """Say which rank evaluates and saves."""
        return self._set(epoch_callback_policy=policy)

    def eval_parallel(self, on: bool = True) -> Self:
        """Share each evaluation among the ranks."""
        return self._set(eval_parallel=on)

    def checkpoint_every_windows(self, count: int) -> Self:
        """Also save after every ``count``-th average of the ranks, to ``<stem>-window<number>``."""
        return self._set(checkpoint_every_windows=count)

    def oom_policy(self, policy: OomPolicy) -> Self:
        """Set what a rank does whose memory runs out in a step."""
        return self._set(oom_policy=policy)

    def max_failures(self, count: int) -> Self:
        """End the run when more ranks than this have died."""
        return self._set(max_failures=count)

    def run(self) -> TrainHandle:
        """Check the configuration and train.

        On one device this returns when training has ended, and what the step raises comes out
        of it. With several ranks it returns at once, and the handle tells how the run goes on; the
        processes of the ranks run the program up to this call, and end in it.

        Raises:
            ConfigError: Settings are missing or wrong; the message lists all of them.
            NonFiniteError: The loss became NaN or infinite.
            CheckpointError: The final checkpoint could not be written.
            RunInterrupted: Ctrl-C.
        """
        model_factory, optim_factory, train_step = self._factories
        if train_step is None:
            raise ConfigError(
                "run(): there is no train step",
                hint="give it to Trainer.builder(model_factory, optim_factory, train_step), or "
                "write the loop yourself: with ....into_worker() as worker",
            )
        config = with_old_settings(self.config, self._given)
        return Trainer.run(model_factory, optim_factory, train_step, config)

    def into_worker(
        self, on_launcher: Callable[[TrainHandle], object] | None = None
    ) -> AbstractContextManager[Worker]:
        """Check the configuration, and train by the loop in the ``with`` block of the result.

        The block gets the rank's :class:`Worker`. It runs on one device in this process, and with
        several ranks in each of them: their processes run the program up to here, and end with
        the block. The process that started them does not enter it: there this call blocks until
        the run is over, and raises ``SystemExit``. Leaving the block early ends the run in good
        order, for all ranks.

        Args:
            on_launcher: Called with the run's handle, once: where ranks are started, as soon as
                they are; elsewhere when the run is over.

        Raises:
            ConfigError: Settings are missing or wrong, or are for the trainer's own loop.
            LaunchError: There is no program that ranks could run.
            RankError: The block raised on a rank.
            RunFailed: The run ended without a result.
            SystemExit: The run is over, in the process that started ranks.

        Examples:
            >>> import torch
            >>> from flodl import TensorDataSet, Trainer
            >>> x = torch.linspace(-1, 1, 64).reshape(64, 1)
            >>> builder = Trainer.builder(
            ...     lambda device: torch.nn.Linear(1, 1),
            ...     lambda parameters: torch.optim.SGD(parameters, lr=0.5),
            ... )
            >>> builder = builder.dataset(TensorDataSet(x, 3 * x)).batch_size(16).num_epochs(20)
            >>> with builder.devices(["cpu"]).into_worker() as worker:
            ...     for epoch in worker.epochs():
            ...         for batch in epoch:
            ...             loss = (worker.model(batch[0]) - batch[1]).square().mean()
            ...             loss.backward()
            ...             worker.step(loss)
            >>> round(worker.model.weight.detach().item(), 2)
            3.0
        """
        config = with_old_settings(self.config, self._given)
        config.validate()
        model_factory, optim_factory, train_step = self._factories
        if train_step is not None:
            _logger.warning("into_worker(): the loop is yours, so the train step is not called")
        return open_worker(RunSpec(model_factory, optim_factory, None, config), on_launcher)

    def _set(self, **changes: Any) -> Self:
        self.config = replace(self.config, **changes)
        return self


class Trainer(Setup):
    """Trains a model: the same call on whatever hardware there is.

    Examples:
        >>> import torch
        >>> from flodl import Trainer
        >>> from flodl.data import TensorDataSet
        >>> x = torch.linspace(-1, 1, 64).reshape(64, 1)
        >>> handle = (
        ...     Trainer.builder(
        ...         lambda device: torch.nn.Linear(1, 1),
        ...         lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        ...         lambda model, batch: (model(batch[0]) - batch[1]).square().mean(),
        ...     )
        ...     .dataset(TensorDataSet(x, 3 * x))
        ...     .batch_size(16)
        ...     .num_epochs(20)
        ...     .devices(["cpu"])
        ...     .run()
        ... )
        >>> round(float(handle.join().params["weight"]), 2)
        3.0
    """

    @staticmethod
    def builder(
        model_factory: ModelFactory,
        optim_factory: OptimFactory,
        train_step: TrainStepFn | None = None,
    ) -> TrainerBuilder:
        """Start describing a run.

        Args:
            model_factory: ``device -> module``; called once per rank, under the run's seed.
            optim_factory: ``parameters -> optimizer``.
            train_step: ``(model, batch) -> loss``, or ``-> (loss, {name: scalar})``. Backward,
                clipping, learning rate, optimizer step and zeroing are the trainer's. None for a
                loop of your own, with :meth:`TrainerBuilder.into_worker`.
        """
        return TrainerBuilder(model_factory, optim_factory, train_step)

    @staticmethod
    def run(
        model_factory: ModelFactory,
        optim_factory: OptimFactory,
        train_step: TrainStepFn,
        config: TrainerConfig,
    ) -> TrainHandle:
        """Train under a ready configuration; the other face of :meth:`builder`.

        Raises:
            As :meth:`TrainerBuilder.run`.
        """
        config.validate()
        spec = RunSpec(model_factory, optim_factory, train_step, config)
        return run_anywhere(
            spec, lambda: SoloRun(model_factory, optim_factory, train_step, config).run()
        )
