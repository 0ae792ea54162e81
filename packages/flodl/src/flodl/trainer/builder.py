"""The call that trains: a builder that fills a configuration, and the run it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from flodl.engine.config import (
    CaptureConfig,
    CapturePolicy,
    ModelFactory,
    NonFinitePolicy,
    OptimFactory,
    PartialPolicy,
    Scheduler,
    TrainStepFn,
    Verify,
)
from flodl.engine.evaluate import EvalFn
from flodl.monitor.monitor import Monitor
from flodl.records import Reduction, Sink
from flodl.trainer.config import (
    AnyDataSet,
    EpochFn,
    EvalResultFn,
    LoaderOptions,
    MetricsFn,
    TrainerConfig,
)
from flodl.trainer.handle import TrainHandle
from flodl.trainer.solo import SoloRun
from flodl.trainer.watching import DashboardOptions, RecordLogOptions, SavedDashboard
from flodl.web.archive import Theme


class TrainerBuilder:
    """Fills a :class:`TrainerConfig` setting by setting; :meth:`run` starts the run.

    Each setter takes the value of the configuration field of its name.
    """

    def __init__(
        self,
        model_factory: ModelFactory,
        optim_factory: OptimFactory,
        train_step: TrainStepFn,
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

    def loader(
        self,
        *,
        shuffle: bool = True,
        drop_last: bool = True,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Set options of the training loader."""
        return self._set(loader=LoaderOptions(shuffle=shuffle, drop_last=drop_last, names=names))

    def scheduler(self, scheduler: Scheduler) -> Self:
        """Set the learning rate of every step from ``scheduler.lr(step)``."""
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
            )
        )

    def compile(self, options: bool | Mapping[str, Any] = True) -> Self:
        """Compile the model; a map gives options of ``torch.compile``."""
        return self._set(compile=options)

    def on_nonfinite(self, policy: NonFinitePolicy) -> Self:
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

    def save_path(self, stem: str | Path) -> Self:
        """Write the model to ``<stem>.fdl`` at the end."""
        return self._set(save_path=stem)

    def checkpoint_every(self, epochs: int) -> Self:
        """Also write it after every n-th epoch."""
        return self._set(checkpoint_every=epochs)

    def run(self) -> TrainHandle:
        """Check the configuration and train.

        On one device this returns when training has ended, and what the step raises comes out
        of it.

        Raises:
            ConfigError: Settings are missing or wrong; the message lists all of them.
            NonFiniteError: The loss became NaN or infinite.
            CheckpointError: The final checkpoint could not be written.
            RunInterrupted: Ctrl-C.
        """
        return Trainer.run(*self._factories, self.config)

    def _set(self, **changes: Any) -> Self:
        self.config = replace(self.config, **changes)
        return self


class Trainer:
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
        model_factory: ModelFactory, optim_factory: OptimFactory, train_step: TrainStepFn
    ) -> TrainerBuilder:
        """Start describing a run.

        Args:
            model_factory: ``device -> module``; called once per rank, under the run's seed.
            optim_factory: ``parameters -> optimizer``.
            train_step: ``(model, batch) -> loss``, or ``-> (loss, {name: scalar})``. Backward,
                clipping, learning rate, optimizer step and zeroing are the trainer's.
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
        return SoloRun(model_factory, optim_factory, train_step, config).run()
