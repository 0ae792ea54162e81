"""A run in this process, on one device."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flodl.checkpoint import save_checkpoint
from flodl.core.errors import CheckpointError, ConfigError, RunInterrupted, StepContractError
from flodl.core.seeding import derive_seed, manual_seed
from flodl.data import DataLoader
from flodl.device.info import default_device, parse_device
from flodl.engine.config import ModelFactory, OptimFactory, TrainStepFn
from flodl.engine.evaluate import EvalContext, evaluate
from flodl.engine.loop import EpochResult, run_epoch
from flodl.engine.step import TrainStep
from flodl.metrics.epoch import EpochMetrics
from flodl.metrics.scalars import ScalarScope
from flodl.monitor.monitor import Monitor
from flodl.trainer.config import AnyDataSet, TrainerConfig
from flodl.trainer.handle import TrainHandle
from flodl.trainer.interrupt import InterruptGuard
from flodl.trainer.state import snapshot

_logger = logging.getLogger(__name__)


class SoloRun:
    """Trains one model on one device, from the seed to the handle.

    Args:
        model_factory: ``device -> module``.
        optim_factory: ``parameters -> optimizer``.
        train_step: ``(model, batch) -> loss``.
        config: A validated configuration.
    """

    def __init__(
        self,
        model_factory: ModelFactory,
        optim_factory: OptimFactory,
        train_step: TrainStepFn,
        config: TrainerConfig,
    ) -> None:
        self._config = config
        self._device = _chosen_device(config)
        self._save_file = None if config.save_path is None else _checkpoint_file(config.save_path)
        manual_seed(derive_seed(config.seed, 0, "weights"))
        self._model = _built_model(model_factory, self._device)
        optimizer = optim_factory(self._model.parameters())
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise StepContractError(
                f"the optimizer factory returned {type(optimizer).__name__}, "
                "not a torch.optim.Optimizer"
            )
        self._scalars = ScalarScope()
        self._step = TrainStep(
            train_step,
            self._model,
            optimizer,
            config=config.step_config(),
            scalars=self._scalars,
        )
        manual_seed(derive_seed(config.seed, 0, "step"))
        self._metrics: list[EpochMetrics] = []
        self._monitor = config.monitor

    def run(self) -> TrainHandle:
        """Train all epochs.

        Raises:
            RunInterrupted: Ctrl-C; its ``state`` is what had been trained by then.
        """
        config = self._config
        epochs, batch_size = config.num_epochs, config.batch_size
        assert config.dataset is not None
        assert epochs is not None
        assert batch_size is not None
        loader = self._loader(config.dataset, batch_size)
        eval_loader = self._eval_loader(batch_size)
        self._monitor = self._watched(epochs)
        try:
            with InterruptGuard() as guard:
                for epoch in range(epochs):
                    finished = self._run_epoch(loader, eval_loader, epoch, epochs, guard)
                    epochs_done = epoch + finished
                    if guard.requested() and epochs_done < epochs:
                        raise self._interruption(epochs_done)
                self._save(epochs)
        except BaseException as error:
            if self._monitor is not None:
                interrupted = isinstance(error, KeyboardInterrupt)
                self._monitor.finish(status="aborted" if interrupted else "failed")
            raise
        if self._monitor is not None:
            self._monitor.finish()
        state = snapshot(self._model, epoch=epochs, global_step=self._step.global_step)
        return TrainHandle(self._metrics, state, [self._device], self._step.stats())

    def _watched(self, epochs: int) -> Monitor | None:
        watching = self._config.watching()
        monitor = watching.monitor(self._config.monitor, epochs)
        if monitor is not None:
            watching.show_model(monitor, self._model)
        return monitor

    def _run_epoch(
        self,
        loader: DataLoader,
        eval_loader: DataLoader | None,
        epoch: int,
        epochs: int,
        guard: InterruptGuard,
    ) -> bool:
        """Train, evaluate and report one epoch; return whether its training was finished."""
        config = self._config
        if config.epoch_fn is not None:
            config.epoch_fn(epoch)
        self._model.train()
        with self._scalars.active():
            result = run_epoch(
                self._step,
                loader,
                epoch,
                on_nonfinite=config.on_nonfinite,
                should_stop=guard.requested,
            )
        if result.interrupted:
            return False
        is_last = epoch + 1 == epochs
        evaluation, eval_ms = None, None
        if eval_loader is not None and (is_last or (epoch + 1) % config.eval_every == 0):
            evaluation, eval_ms = self._evaluate(eval_loader, epoch)
        self._report(self._summary(epoch, result, evaluation, eval_ms))
        if config.checkpoint_every is not None and (epoch + 1) % config.checkpoint_every == 0:
            self._save_periodic(epoch + 1)
        return True

    def _evaluate(self, loader: DataLoader, epoch: int) -> tuple[dict[str, float], float]:
        assert self._config.eval_fn is not None
        started = time.perf_counter()
        context = EvalContext(epoch=epoch, device=self._device)
        values = evaluate(self._model, loader, self._config.eval_fn, context)
        return values, (time.perf_counter() - started) * 1000

    def _summary(
        self,
        epoch: int,
        result: EpochResult,
        evaluation: dict[str, float] | None,
        eval_ms: float | None,
    ) -> EpochMetrics:
        scalars = self._scalars.means()
        return EpochMetrics(
            epoch=epoch,
            avg_loss=result.avg_loss,
            epoch_ms=result.wall_ms,
            eval_ms=eval_ms,
            batches_processed=result.batches,
            samples_processed=result.samples,
            scalars=scalars,
            eval=evaluation,
            lr=self._step.current_lr,
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
            self._monitor.log(metrics.epoch, metrics.epoch_ms / 1000, metrics)
        if config.metrics_fn is not None:
            _notify("metrics_fn", config.metrics_fn, metrics)
        if config.eval_result_fn is not None and metrics.eval is not None:
            _notify("eval_result_fn", config.eval_result_fn, metrics.epoch, metrics.eval)

    def _save(self, epochs_done: int) -> None:
        if self._save_file is None:
            return
        meta = {"epoch": epochs_done, "global_step": self._step.global_step}
        save_checkpoint(self._save_file, self._model, meta=meta)

    def _save_periodic(self, epochs_done: int) -> None:
        """Save between epochs; a failure costs this checkpoint, not the run."""
        try:
            self._save(epochs_done)
        except CheckpointError as error:
            _logger.warning(
                "checkpoint after epoch %d failed, training goes on: %s", epochs_done, error
            )

    def _interruption(self, epochs_done: int) -> RunInterrupted:
        step = self._step.global_step
        epochs = "1 epoch" if epochs_done == 1 else f"{epochs_done} epochs"
        message = f"interrupted after {epochs} and {step} steps"
        if self._save_file is not None:
            self._save(epochs_done)
            message += f"; the model was saved to {self._save_file}"
        return RunInterrupted(message, snapshot(self._model, epoch=epochs_done, global_step=step))

    def _loader(self, dataset: AnyDataSet, batch_size: int) -> DataLoader:
        options = self._config.loader
        return DataLoader(
            dataset,
            batch_size=batch_size,
            device=self._device,
            seed=derive_seed(self._config.seed, 0, "order"),
            shuffle=options.shuffle,
            drop_last=options.drop_last,
            names=options.names,
        )

    def _eval_loader(self, batch_size: int) -> DataLoader | None:
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


def _built_model(factory: ModelFactory, device: torch.device) -> nn.Module:
    model = factory(device)
    if not isinstance(model, nn.Module):
        raise StepContractError(
            f"the model factory returned {type(model).__name__}, not a torch.nn.Module"
        )
    return model.to(device)


def _checkpoint_file(save_path: str | Path) -> Path:
    """Return the checkpoint's path, after checking that its folder can be made and written."""
    file = Path(f"{save_path}.fdl")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        probe = file.with_name(f".{file.name}.probe")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"save_path={str(save_path)!r}: {file.parent} cannot be written: {error.strerror}",
            hint="choose a folder that exists or can be made, on a disk with room",
        ) from error
    return file


def _notify(name: str, function: Any, *args: Any) -> None:
    """Call a user's observer; what it raises must not end the training it observes."""
    try:
        function(*args)
    except Exception:
        _logger.exception("%s raised; training goes on", name)
