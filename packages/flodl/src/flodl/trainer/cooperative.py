"""A loop of the user's own as a ``with`` block, in whichever part a process plays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from flodl.core.errors import ConfigError, RunInterrupted
from flodl.distributed.worker.cooperative import begin, end
from flodl.distributed.worker.own_step import check_own_loop
from flodl.trainer.handle import TrainHandle
from flodl.trainer.ranks.call import Parts, take_part
from flodl.trainer.ranks.spec import RunSpec
from flodl.trainer.solo_loop import SoloWorker
from flodl.trainer.stopping import is_leaving

if TYPE_CHECKING:
    from flodl.distributed.launch.environments.base import Outside
    from flodl.distributed.worker.loop import RankLoop
    from flodl.distributed.worker.worker import Worker

OnLauncher: TypeAlias = Callable[[TrainHandle], object] | None


def open_worker(spec: RunSpec, on_launcher: OnLauncher) -> AbstractContextManager[Worker]:
    """Return what gives this process its worker; where it has none, see the run through.

    Raises:
        As ``TrainerBuilder.into_worker``.
    """
    check_own_loop(spec.config.step_config())
    if spec.config.profile_graph:
        raise ConfigError(
            "profile_graph: set, and it calls the train step, which a loop of your own has not"
        )
    parts: Parts[AbstractContextManager[Worker]] = Parts(
        alone=lambda: SoloWorker(spec, on_launcher),
        directing=lambda handle: _see_through(handle, on_launcher),
        as_rank=lambda: _RankWorker(spec),
        outside=lambda ordinal, outside: _OutsideWorker(spec, ordinal, outside, on_launcher),
    )
    return take_part(spec, parts)


def _see_through(handle: TrainHandle, on_launcher: OnLauncher) -> NoReturn:
    """Wait for the end of a run whose loop other processes run, and end this one."""
    with handle:
        try:
            if on_launcher is not None:
                on_launcher(handle)
            handle.join()
        except RunInterrupted as error:
            raise SystemExit(_status(handle)) from error
    raise SystemExit(0)


def _status(handle: TrainHandle) -> int:
    from flodl.trainer.ranks.running import RunningRun

    return handle.exit_code if isinstance(handle, RunningRun) else 0


class _RankWorker(AbstractContextManager["Worker"]):
    """The loop in a process that was started as a rank, which ends with it.

    Args:
        spec: What is trained.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec

    def __enter__(self) -> Worker:
        from flodl.distributed.launch.child import rank_link
        from flodl.trainer.ranks.offer import RunOffer
        from flodl.trainer.ranks.rank import rank_loop

        self._link = rank_link()
        offer = RunOffer.read(Path(self._link.place.run_dir))
        self._loop = rank_loop(self._spec, self._link, len(offer.devices))
        try:
            return begin(self._loop)
        except Exception as error:  # noqa: BLE001 - the controller has been told
            self._leave(error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> NoReturn:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> NoReturn:
        from flodl.distributed.launch.child import leave

        code = _ended(self._loop, error)
        self._link.close()
        leave(code)


class _OutsideWorker(AbstractContextManager["Worker"]):
    """The loop in a process that torchrun or Slurm has started, which goes on after it.

    Args:
        spec: What is trained.
        ordinal: Number of the call.
        outside: The place that the launcher gave this process.
        on_launcher: Called in the first rank when the run is over.
    """

    def __init__(
        self, spec: RunSpec, ordinal: int, outside: Outside, on_launcher: OnLauncher
    ) -> None:
        self._given = (spec, ordinal, outside)
        self._on_launcher = on_launcher if outside.is_first else None

    def __enter__(self) -> Worker:
        from flodl.trainer.ranks.outside import OutsideRank

        self._rank = OutsideRank(*self._given)
        try:
            return begin(self._rank.loop)
        except BaseException as error:
            self._part(error)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._part(error)
        if error is not None and not is_leaving(error):
            return False
        finished = self._rank.result()
        if self._on_launcher is not None:
            self._on_launcher(finished)
        return not isinstance(error, SystemExit)

    def _part(self, error: BaseException | None) -> None:
        try:
            _ended(self._rank.loop, error)
        finally:
            self._rank.part()


def _ended(loop: RankLoop, error: BaseException | None) -> int:
    """End a rank's part in good order, and return its exit status."""
    end(loop, None if is_leaving(error) else error)
    assert loop.code is not None
    return loop.code
