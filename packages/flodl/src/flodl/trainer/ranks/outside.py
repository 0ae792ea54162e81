"""What ``run()`` does under torchrun or Slurm: join the ranks that are there already."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from flodl.core.errors import RunFailed, RunInterrupted
from flodl.distributed.launch.environments.base import Outside
from flodl.distributed.launch.hardware import cpu_devices, gpu_devices
from flodl.distributed.launch.local import LocalPlan
from flodl.distributed.launch.method import program
from flodl.distributed.launch.outside import join_outside
from flodl.distributed.launch.signals import SignalWatch
from flodl.distributed.protocol.messages import Stop
from flodl.distributed.protocol.values import Device
from flodl.sys import detect_gpus
from flodl.trainer.finished import FinishedRun
from flodl.trainer.portrait import Portrait
from flodl.trainer.ranks.introduction import portrait_of, settings_shown
from flodl.trainer.ranks.offer import take_over, timeline_file
from flodl.trainer.ranks.rank import rank_loop
from flodl.trainer.ranks.running import metrics_of
from flodl.trainer.ranks.spec import RunSpec
from flodl.trainer.state import TrainedState

if TYPE_CHECKING:
    from flodl.distributed.serving.desk import Note
    from flodl.distributed.worker.link import RankLink
    from flodl.distributed.worker.loop import RankLoop
    from flodl.metrics.epoch import EpochMetrics


def run_outside(spec: RunSpec, ordinal: int, outside: Outside) -> FinishedRun:
    """Train as the rank that another launcher started; every rank gets the trained state.

    The first one also gets the metrics, and calls the observers.

    Raises:
        LaunchError: The controller cannot be found.
        RunFailed: The run ended without a result; what user code raised here comes out as it was.
    """
    rank = OutsideRank(spec, ordinal, outside)
    try:
        rank.loop.run()
    finally:
        rank.part()
    return rank.result()


class OutsideRank:
    """This process as one of the ranks that another launcher has started.

    Args:
        spec: What is trained.
        ordinal: Number of the call.
        outside: The place that the launcher gave this process.

    Raises:
        LaunchError: The controller cannot be found.
    """

    def __init__(self, spec: RunSpec, ordinal: int, outside: Outside) -> None:
        if outside.rank == 0:
            spec.check_places(outside.world_size)
        gpus = detect_gpus()
        on_gpu = len(gpus) > outside.local_rank
        device, self._device = _device(outside, on_gpu=on_gpu)
        self._spec, self._outside = spec, outside
        self._notes = _Notes(spec)
        plan = LocalPlan(
            devices=(),
            vendor=gpus[0].vendor.value if on_gpu else "cpu",
            command=program(spec.config.launch),
            ordinal=ordinal,
            timeouts=spec.timeouts(),
            threads=None if on_gpu else max(1, (os.cpu_count() or 1) // outside.local_world_size),
        )
        if plan.threads is not None:
            torch.set_num_threads(plan.threads)
        self._run = join_outside(
            outside, plan, device=device, torch_device=self._device, receive=self._notes.take
        )
        if self._run.controller is not None:
            self._notes.stop = partial(self._run.controller.stop, reason="stop_training")
        kind = device.name if outside.local_rank == 0 else None
        self.loop = rank_loop(spec, self._run.link, outside.world_size, kind)
        self._watch = SignalWatch(_Asking(self._run.link))
        self._watch.install()

    def part(self) -> None:
        """Part from the controller; the first rank waits for its end."""
        self._run.close()
        controller, timeline = self._run.controller, self._spec.config.timeline
        if controller is not None:
            controller.wait()
            if timeline is not None:
                take_over(timeline, timeline_file(controller.folder.path))
            controller.discard()
        self._watch.remove()

    def result(self) -> FinishedRun:
        """Return the handle of the run, which is over.

        Raises:
            RunFailed: It ended without a result; what user code raised here comes out as it was.
            RunInterrupted: A signal has ended it, in good order.
        """
        loop = self.loop
        if loop.error is not None:
            raise loop.error
        if loop.code != 0:
            raise RunFailed(
                f"rank {self._outside.rank} was ended by the run with status {loop.code}"
            )
        state = _state(loop, self._notes)
        if self._watch.received is not None:
            raise RunInterrupted(f"interrupted after {state.global_step} steps", state)
        return FinishedRun(
            self._notes.metrics, state, torch.device(self._device), None, portrait=self._portrait()
        )

    def _portrait(self) -> Callable[[], Portrait]:
        trainee = self.loop.trainee
        assert trainee is not None
        mode = str(self._spec.elche(on_gpu=self._device != "cpu").mode)
        settings = settings_shown(self._spec, ranks=self._outside.world_size, mode=mode)
        return partial(portrait_of, trainee.model, trainee.optimizer, settings)


class _Asking:
    """Lets a signal ask the controller for the end of the run; the first one of any rank counts.

    Args:
        link: The way to the controller.
    """

    def __init__(self, link: RankLink) -> None:
        self._link = link

    def stop(self, *, save: bool = True, reason: str = "graceful_shutdown") -> None:
        """Ask for an end in good order."""
        self._link.send(Stop(save=save, reason=reason))

    def abort(self) -> None:
        """Do nothing: what the signal raises ends this process, and with it the others' wait."""


def _device(outside: Outside, *, on_gpu: bool) -> tuple[Device, str]:
    if not on_gpu:
        return cpu_devices(outside.local_world_size)[outside.local_rank], "cpu"
    return gpu_devices(detect_gpus())[outside.local_rank], f"cuda:{outside.local_rank}"


def _state(loop: RankLoop, notes: _Notes) -> TrainedState:
    """Return what all ranks share at the end, which this rank has as well."""
    trainee = loop.trainee
    assert trainee is not None
    named = trainee.plane.consensus.tensors()
    parameters = {name for name, _ in trainee.model.named_parameters()}
    state = trainee.model.state_dict()
    values = {name: named.get(name, value.detach().cpu()) for name, value in state.items()}
    return TrainedState(
        params={name: value for name, value in values.items() if name in parameters},
        buffers={name: value for name, value in values.items() if name not in parameters},
        epoch=trainee.worker.current_epoch if trainee.worker.should_stop else notes.epochs,
        global_step=trainee.step.global_step,
    )


class _Notes:
    """What the controller tells the first rank."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self.metrics: list[EpochMetrics] = []
        self.stop: Callable[[], None] = lambda: None
        """Asks the controller to end the run in good order."""

    @property
    def epochs(self) -> int:
        """Epochs of the whole run."""
        return self._spec.config.num_epochs or 0

    def take(self, note: Note) -> None:
        """Take one note."""
        config = self._spec.config
        if note["op"] == "epoch":
            metrics = metrics_of(note)
            with self._lock:
                self.metrics.append(metrics)
            if config.monitor is not None:
                config.monitor.log(metrics.epoch, metrics.epoch_ms / 1000, metrics)
            if config.metrics_fn is not None:
                self._tell("metrics_fn", config.metrics_fn, metrics)
        elif note["op"] == "eval" and config.eval_result_fn is not None:
            self._tell("eval_result_fn", config.eval_result_fn, note["epoch"], note["values"])

    def _tell(self, name: str, function: Callable[..., object], *args: object) -> None:
        from flodl.trainer.observers import notify

        if notify(name, function, *args):
            self.stop()
