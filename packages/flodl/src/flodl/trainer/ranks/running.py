"""The handle of a run whose ranks are other processes."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from flodl.checkpoint import checkpoint_info, load_checkpoint
from flodl.core.errors import FlodlError, NonFiniteError, RunFailed, RunInterrupted
from flodl.distributed.cluster.orphan import noted_orphan
from flodl.distributed.launch.attach import AttachedRun
from flodl.distributed.launch.local import Ending, LocalRun
from flodl.distributed.launch.signals import SignalWatch
from flodl.metrics.epoch import EpochMetrics
from flodl.trainer.handle import EpochFeed, TrainHandle
from flodl.trainer.portrait import Portrait
from flodl.trainer.ranks.remote_errors import rebuilt
from flodl.trainer.report import RunReport, RunStatus
from flodl.trainer.state import TrainedState

if TYPE_CHECKING:
    from flodl.distributed.launch.threads.run import ThreadRun
    from flodl.distributed.serving.desk import Note
    from flodl.engine.stats import StepStats

_logger = logging.getLogger(__name__)
_GLANCE_S = 0.05
_NOT_FINITE = "nonfinite: "
_INTERRUPTED = frozenset({"interrupted", "graceful_shutdown"})


class RunningRun(TrainHandle):
    """A run over several ranks, which goes on behind this handle.

    Args:
        run: The processes.
        feed: Where epochs arrive.
        devices: One for each rank.
        on_end: Called with the run's result when :meth:`join` first has it.
        on_over: Called in another thread when all processes have ended.
    """

    def __init__(
        self,
        run: LocalRun | AttachedRun | ThreadRun,
        feed: EpochFeed,
        devices: tuple[torch.device, ...],
        states: StateLine,
        on_end: Callable[[TrainedState], None],
        on_over: Callable[[Ending], None],
    ) -> None:
        super().__init__(feed)
        self._run = run
        self._devices = devices
        self._states = states
        self._on_end = on_end
        self._on_over = on_over
        self._watch = SignalWatch(run)
        self._watch.install()
        self._follower = threading.Thread(target=self._follow, name="flodl-epochs", daemon=True)
        self._follower.start()
        self._result: TrainedState | None = None
        self._ending: Ending | None = None
        self._portrait: Portrait | None = None

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Devices that the run started with, as its ranks name them on their host."""
        return self._devices

    @property
    def step_stats(self) -> StepStats:
        """Not to be had here.

        Raises:
            FlodlError: Always: the steps ran in other processes.
        """
        raise FlodlError(
            "step_stats: the steps ran in other processes",
            hint="each rank says in its log why a step is not captured",
        )

    def portrait(self) -> Portrait:
        """Return what the run says of its model and settings; waits until a rank has told.

        Nothing, where the run ended before, or its ranks are threads.
        """
        found = self._portrait
        while found is None:
            is_over = self._run.wait(_GLANCE_S) is not None
            found = Portrait.read(self._run.folder.path)
            if is_over and found is None:
                return Portrait()
        self._portrait = found
        return found

    def join(self, timeout: float | None = None) -> TrainedState:
        """Wait for the end of the run and return the trained state."""
        if self._result is not None:
            return self._result
        ending = self._wait(timeout)
        self._follower.join()  # the end is told before its result is given
        self._watch.remove()
        self._result = self._outcome(ending)
        self._on_end(self._result)
        self._portrait = self._portrait or Portrait.read(self._run.folder.path) or Portrait()
        self._run.discard()
        return self._result

    @property
    def exit_code(self) -> int:
        """Status for a program that a signal has ended; 0 where none came."""
        return self._watch.exit_code

    def stop(self, *, save: bool = True) -> None:
        """Ask the run to end in good order: after the batch at hand and a last average."""
        if self._ending is None:
            self._run.stop(save=save)

    def abort(self) -> None:
        """End all processes of the run now."""
        if self._ending is None:
            self._run.abort()

    def status(self) -> RunStatus:
        """Return what the run does now."""
        return self._states.now()

    @property
    def report(self) -> RunReport:
        """What the run amounted to; waits for its end."""
        finish = self._wait(None).finish
        return RunReport.of(finish.get("report", {}) if finish is not None else {})  # type: ignore[arg-type] # the controller's own

    def _follow(self) -> None:
        """End the feed when the run is over."""
        ending = self._run.wait()
        assert ending is not None
        try:
            self._on_over(ending)
        finally:
            self._feed.close()

    def _wait(self, timeout: float | None) -> Ending:
        """Wait for the end of the run."""
        if self._ending is None:
            self._ending = self._run.wait(timeout)
        if self._ending is None:
            raise TimeoutError(f"the run is not over after {timeout:g} s; it goes on")
        return self._ending

    def _outcome(self, ending: Ending) -> TrainedState:
        finish = ending.finish
        if finish is None:
            raise RunFailed(
                f"the run ended without a result: {ending.reason}"
                + (f"\n{ending.log_tail}" if ending.log_tail else ""),
                hint=self._left(),
            )
        errors: Any = finish.get("errors") or ()
        if errors and finish.get("is_failed"):  # else those who raised were given up, as deaths
            raise rebuilt(errors)
        reason = str(finish.get("reason", ""))
        if reason.startswith(_NOT_FINITE):
            raise NonFiniteError(f"the run ended as a loss or parameter is not finite: {reason}")
        if finish.get("is_failed"):
            raise RunFailed(f"the run failed: {reason}", hint=self._left())
        state = read_state(self._run.folder.path / "final.fdl", finish)
        if self._watch.received is not None or reason in _INTERRUPTED:
            raise RunInterrupted(f"interrupted after {state.epoch} epochs", state)
        return state

    def _left(self) -> str:
        """Return where to find what a run has left that failed."""
        folder = self._run.folder.path
        orphan = noted_orphan(folder)
        saved = "" if orphan is None else f"what its ranks shared last was saved to {orphan}; "
        return f"{saved}logs are in {folder}"


class StateLine:
    """The latest state that the controller has told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = RunStatus(state="waiting")

    def set(self, state: str, reason: str) -> None:
        """Take note of a state."""
        with self._lock:
            self._state = RunStatus(state=state, reason=reason)

    def now(self) -> RunStatus:
        """Return the latest one."""
        with self._lock:
            return self._state


def read_state(file: Path, finish: Mapping[str, Any]) -> TrainedState:
    """Return the trained state that a rank has written at the end of a run.

    Raises:
        RunFailed: There is none.
    """
    if not file.is_file():
        raise RunFailed(f"the run left no final state: {file} is not there")
    info = checkpoint_info(file)
    tensors = {
        name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in info.tensors.items()
    }
    tensors |= {name: tensors[stored] for name, stored in info.aliases.items()}
    load_checkpoint(file, tensors, check_hash=False)
    meta, buffers = info.meta, set(info.buffers)
    return TrainedState(
        params={name: value for name, value in tensors.items() if name not in buffers},
        buffers={name: value for name, value in tensors.items() if name in buffers},
        epoch=_finished(meta),
        global_step=int(meta.get("global_step", 0)),
        generation=int(meta.get("generation", 1)),
        partial=bool(finish.get("is_partial")),
    )


def _finished(meta: Mapping[str, Any]) -> int:
    """Return how many epochs are whole: all before the first that is open."""
    open_epochs = [account["epoch"] for account in meta.get("ledger", ())]
    return int(min(open_epochs, default=meta.get("next_epoch", 0)))


def metrics_of(note: Note) -> EpochMetrics:
    """Return the metrics that a note of the controller holds."""
    given: Any = note["metrics"]
    names = {field.name for field in dataclasses.fields(EpochMetrics)}
    return EpochMetrics(**{name: value for name, value in given.items() if name in names})
