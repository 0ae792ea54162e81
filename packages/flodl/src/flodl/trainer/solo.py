"""A run in this process, on one device."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import torch
from torch import nn

from flodl.core.errors import RunInterrupted, StepContractError
from flodl.core.seeding import derive_seed, manual_seed
from flodl.data import DataLoader, Repeat
from flodl.device.info import default_device, parse_device
from flodl.distributed.worker.own_step import OwnStep
from flodl.distributed.worker.worker import Worker, call_epoch_fn
from flodl.engine.config import ModelFactory, OptimFactory, StepConfig, TrainStepFn
from flodl.engine.evaluate import EvalContext, evaluate
from flodl.engine.feeding import Feeder, GatheringFeeder
from flodl.engine.loop import EpochResult, LossFn, run_epoch
from flodl.engine.resume import RunState
from flodl.engine.schedules import made_scheduler
from flodl.engine.step import TrainStep
from flodl.metrics.epoch import EpochMetrics
from flodl.metrics.scalars import ScalarScope
from flodl.monitor.monitor import Monitor
from flodl.monitor.scope import EpochScope
from flodl.nn.norm import check_norm_stats
from flodl.trainer.checkpoints import Checkpoints
from flodl.trainer.config import AnyDataSet, TrainerConfig
from flodl.trainer.finished import FinishedRun
from flodl.trainer.handle import TrainHandle
from flodl.trainer.interrupt import InterruptGuard
from flodl.trainer.observers import notify
from flodl.trainer.portrait import Portrait
from flodl.trainer.ranks.introduction import portrait_of
from flodl.trainer.state import snapshot
from flodl.trainer.step_notes import StepNotes

_logger = logging.getLogger(__name__)


class SoloRun:
    """Trains one model on one device, from the seed to the handle.

    Args:
        model_factory: ``device -> module``.
        optim_factory: ``parameters -> optimizer``.
        train_step: ``(model, batch) -> loss``; ``None`` where the loop is the user's own.
        config: A validated configuration.
    """

    def __init__(
        self,
        model_factory: ModelFactory,
        optim_factory: OptimFactory,
        train_step: TrainStepFn | None,
        config: TrainerConfig,
    ) -> None:
        self._config = config
        self._device = _chosen_device(config)
        self._checkpoints = Checkpoints(config)
        manual_seed(derive_seed(config.seed, 0, "weights"))
        self.model = _built_model(model_factory, self._device)
        optimizer = optim_factory(self.model.parameters())
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise StepContractError(
                f"the optimizer factory returned {type(optimizer).__name__}, "
                "not a torch.optim.Optimizer"
            )
        self._train_step = train_step
        self.scalars = ScalarScope()
        self._scheduler = made_scheduler(config.scheduler, optimizer, world_size=1)
        self.step = _made_step(
            train_step, self.model, optimizer, config.step_config(self._scheduler), self.scalars
        )
        self.worker = Worker(
            device=self._device,
            model=self.model,
            optimizer=optimizer,
            train_step=self.step,
            scalars=self.scalars,
        )
        manual_seed(derive_seed(config.seed, 0, "step"))
        self._metrics: list[EpochMetrics] = []
        self._monitor = config.monitor
        self._notes = StepNotes()
        self.epochs_done = 0
        self.stops = False
        """Whether an observer has asked that the run ends."""

    def run(self) -> TrainHandle:
        """Train all epochs.

        Raises:
            RunInterrupted: Ctrl-C; its ``state`` is what had been trained by then.
            CheckpointError: The run cannot go on from what it was told to.
        """
        self.begin()
        feeder = self._feeder(self.loader)
        try:
            with InterruptGuard() as guard:
                while self.epochs_done < self.epochs and not self.stops:
                    self._run_epoch(feeder, guard)
                    if guard.requested() and self.epochs_done < self.epochs:
                        raise self.interruption()
                self.save()
        except BaseException as error:
            self.abandon(error)
            raise
        return self.finished()

    def begin(self) -> None:
        """Make the loaders, take up the checkpoint to go on from, and show the run.

        Raises:
            CheckpointError: The run cannot go on from what it was told to.
        """
        config = self._config
        assert config.dataset is not None
        assert config.num_epochs is not None
        assert config.batch_size is not None
        self.epochs = config.num_epochs
        self.loader = self._made_loader(config.dataset, config.batch_size)
        self._eval_loader = self._made_eval_loader(config.batch_size)
        self._state = RunState(self.step, self.loader, self._device, config.seed, self._scheduler)
        self.epochs_done = self._checkpoints.resumed(self._state)
        self._monitor = self._watched(self.epochs)
        self._batches = len(self.loader)

    def save(self, reason: str = "checkpoint") -> None:
        """Save what is trained, if the run has a place for it.

        Raises:
            CheckpointError: It cannot be written.
        """
        self._checkpoints.save(self._state, self.epochs_done, reason)

    def abandon(self, error: BaseException) -> None:
        """Show that the run has ended before its time."""
        self._checkpoints.close()
        if self._monitor is not None:
            interrupted = isinstance(error, KeyboardInterrupt)
            self._monitor.finish(status="aborted" if interrupted else "failed")

    def finished(self) -> FinishedRun:
        """Return the handle of the run, which is over."""
        if self._monitor is not None:
            forward = partial(self._forward_once, self.loader)
            self._config.watching().show_profile(self._monitor, self.model, forward)
            self._monitor.finish()
        trained = snapshot(self.model, epoch=self.epochs_done, global_step=self.step.global_step)
        return FinishedRun(
            self._metrics, trained, self._device, self.step.stats(), portrait=self._portrait()
        )

    def _portrait(self) -> Callable[[], Portrait]:
        config = self._config
        settings = {
            "mode": "one device",
            "epochs": config.num_epochs,
            "batch_size": config.batch_size,
            "samples": len(config.dataset) if config.dataset is not None else None,
            "seed": config.seed,
        }
        return partial(portrait_of, self.model, self.worker.optimizer, settings)

    def _watched(self, epochs: int) -> Monitor | None:
        watching = self._config.watching()
        monitor = watching.monitor(self._config.monitor, epochs)
        if monitor is not None:
            watching.show_model(monitor, self.model)
        return monitor

    def _run_epoch(self, feeder: Feeder, guard: InterruptGuard) -> None:
        epoch = self.epochs_done
        with self.entered(epoch) as on_loss:
            result = run_epoch(
                self.step,
                feeder,
                epoch,
                on_nonfinite=self._config.step_nonfinite,
                should_stop=guard.requested,
                on_loss=on_loss,
            )
        self.worker.local_step += result.batches
        self.leave(epoch, result)

    @contextlib.contextmanager
    def entered(self, epoch: int) -> Iterator[LossFn | None]:
        """Begin an epoch's training; gives what is to be told its losses, and ends it."""
        if self.worker.enters(epoch) and self._config.epoch_fn is not None:
            call_epoch_fn(self._config.epoch_fn, epoch, self.worker)
        self.model.train()
        scope = self._followed(epoch)
        with self.scalars.active():
            yield None if scope is None else scope.step_of
        if scope is not None:
            scope.finish()

    def leave(self, epoch: int, result: EpochResult) -> None:
        """Evaluate, report and save after an epoch; one that was broken off is not over."""
        if result.interrupted:
            return
        is_last = epoch + 1 == self.epochs
        evaluation, eval_ms = None, None
        if self._eval_loader is not None and (
            is_last or (epoch + 1) % self._config.eval_every == 0
        ):
            evaluation, eval_ms = self._evaluate(self._eval_loader, epoch)
        self._report(self._summary(epoch, result, evaluation, eval_ms))
        self.epochs_done = epoch + 1
        self._checkpoints.after_epoch(self._state, self.epochs_done)

    def _followed(self, epoch: int) -> EpochScope | None:
        """Return what takes in the losses of an epoch for reports within it."""
        if self._monitor is None:
            return None
        return self._monitor.follow(
            epoch,
            steps=self._batches,
            global_step=self.step.global_step,
            accumulate=self._config.accumulate,
        )

    def _forward_once(self, loader: DataLoader) -> None:
        with closing(loader.epoch(0)) as batches:
            batch = next(batches)
            if self._train_step is not None:
                self._train_step(self.model, batch)

    def _evaluate(self, loader: DataLoader, epoch: int) -> tuple[dict[str, float], float]:
        assert self._config.eval_fn is not None
        started = time.perf_counter()
        check_norm_stats(self.model)
        context = EvalContext(epoch=epoch, device=self._device)
        values = evaluate(self.model, loader, self._config.eval_fn, context)
        return values, (time.perf_counter() - started) * 1000

    def _summary(
        self,
        epoch: int,
        result: EpochResult,
        evaluation: dict[str, float] | None,
        eval_ms: float | None,
    ) -> EpochMetrics:
        scalars = self.scalars.means()
        return EpochMetrics(
            epoch=epoch,
            avg_loss=result.avg_loss,
            epoch_ms=result.wall_ms,
            eval_ms=eval_ms,
            batches_processed=result.batches,
            samples_processed=result.samples,
            scalars=scalars,
            eval=evaluation,
            lr=self.step.current_lr,
            per_rank_loss=[result.avg_loss if result.batches else None],
            per_rank_scalars=[scalars],
            per_rank_samples=[result.samples],
            per_rank_time_ms=[result.wall_ms],
            per_rank_throughput=[result.samples / result.wall_ms],
        )

    def _report(self, metrics: EpochMetrics) -> None:
        config = self._config
        self._metrics.append(metrics)
        if self._monitor is not None:
            plane = self._monitor.plane
            mark = None if plane.timeline is None else plane.timeline.event
            self._notes.tell(self.step.stats(), plane.board.tree, mark)
            self._monitor.log(metrics.epoch, metrics.epoch_ms / 1000, metrics)
        if config.metrics_fn is not None:
            self.stops |= notify("metrics_fn", config.metrics_fn, metrics)
        if config.eval_result_fn is not None and metrics.eval is not None:
            self.stops |= notify(
                "eval_result_fn", config.eval_result_fn, metrics.epoch, metrics.eval
            )

    def interruption(self) -> RunInterrupted:
        """Save, and return what tells the caller that the run was interrupted."""
        epochs_done, step = self.epochs_done, self.step.global_step
        epochs = "1 epoch" if epochs_done == 1 else f"{epochs_done} epochs"
        message = f"interrupted after {epochs} and {step} steps"
        if self._checkpoints.file is not None:
            self.save("interrupted")
            message += f"; the model was saved to {self._checkpoints.file}"
        return RunInterrupted(message, snapshot(self.model, epoch=epochs_done, global_step=step))

    def _made_loader(self, dataset: AnyDataSet, batch_size: int) -> DataLoader:
        config = self._config
        if config.augment > 1:
            dataset = Repeat(dataset, config.augment * len(dataset))
        return DataLoader(
            dataset,
            batch_size=batch_size,
            device=self._device,
            seed=derive_seed(config.seed, 0, "order"),
            **config.loader.options(),
        )

    def _feeder(self, loader: DataLoader) -> Feeder:
        """Return what the loop takes batches from: where it can, the step gathers them itself."""
        config = self._config
        captures = self._device.type == "cuda" and config.capture.mode != "off"
        if not captures or config.loader.device_transform is not None or config.bucket_sizes:
            return loader
        return GatheringFeeder(loader, config.capture.steps_per_replay)

    def _made_eval_loader(self, batch_size: int) -> DataLoader | None:
        dataset = self._config.eval_dataset
        if dataset is None:
            return None
        return DataLoader(
            dataset,
            batch_size=batch_size,
            device=self._device,
            shuffle=False,
            drop_last=False,
            names=self._config.loader.names,
            collate=self._config.loader.collate,
        )


def _chosen_device(config: TrainerConfig) -> torch.device:
    if config.devices is not None:
        return parse_device(config.devices[0])
    device = default_device()
    if device.type == "cuda" and torch.cuda.device_count() > 1:
        _logger.warning(
            "%d GPUs are visible; this version trains on %s alone",
            torch.cuda.device_count(),
            device,
        )
    return device


def _made_step(
    train_step: TrainStepFn | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: StepConfig,
    scalars: ScalarScope,
) -> TrainStep:
    if train_step is None:
        return OwnStep(model, optimizer, config=config, scalars=scalars)
    return TrainStep(train_step, model, optimizer, config=config, scalars=scalars)


def _built_model(factory: ModelFactory, device: torch.device) -> nn.Module:
    model = factory(device)
    if not isinstance(model, nn.Module):
        raise StepContractError(
            f"the model factory returned {type(model).__name__}, not a torch.nn.Module"
        )
    return model.to(device)
