"""Keeps what ranks share outside their processes, for a time when none of them is left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flodl.core.log import warn_once
from flodl.distributed.averaging.durable import (
    WINDOW,
    DurableConsensus,
    newest_of_run,
    run_prefix,
)
from flodl.distributed.averaging.plane import Plane
from flodl.distributed.averaging.state import State
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.segments import SHARED_MEMORY

_logger = logging.getLogger(__name__)
_MOST_OF_THE_TIME = 0.02
"""Share of a rank's time that copying may take; with larger models fewer windows are kept."""


class Keeper:
    """Writes the shared values after every n-th window, on the rank that leads its host.

    Writing is done by a thread. A window is left out whose turn comes while the one before is still
    being written, or so soon that copying would cost a rank more than a fiftieth of its time.

    Args:
        plane: Holds the shared values.
        run: The run.
        uid: This rank.
        every: Windows between two copies.
        run_dir: Where they go when shared memory has no room.
        folders: Where they go before.
        clock: Seconds.
    """

    def __init__(
        self,
        plane: Plane,
        *,
        run: str,
        uid: str,
        every: int,
        run_dir: Path,
        folders: Sequence[Path] = (SHARED_MEMORY,),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._plane, self._run, self._every = plane, run, every
        self._folders = (*folders, run_dir)
        self._durable = DurableConsensus(f"{run_prefix(run)}{uid.replace('/', '_')}", self._folders)
        self._clock = clock
        self._not_before = float("-inf")
        self._windows = 0
        self.is_leader = False
        """Whether this rank leads its host."""

    def after_window(self, window: int) -> None:
        """Keep the result of a window, if it is due."""
        self._windows += 1
        started = self._clock()
        is_due = self.is_leader and self._windows % self._every == 0
        if not is_due or started < self._not_before or self._durable.is_busy:
            return
        try:
            self._durable.write(self._plane.kept() | State(meta={WINDOW: window}))
        except CollectiveError as error:
            warn_once(_logger, "%s; a run that loses all ranks will leave nothing", error)
        spent = self._clock() - started
        self._not_before = started + spent / _MOST_OF_THE_TIME

    def restore(self, window: int) -> None:
        """Go on from what was kept of a window.

        Raises:
            CollectiveError: It was not kept.
        """
        state = newest_of_run(self._run, self._folders)
        held = None if state is None else state.meta[WINDOW]
        if state is None or held != window:
            there = "nothing" if held is None else f"that of window {held}"
            raise CollectiveError(
                f"no rank is left that has the result of window {window}, and kept is {there}",
                hint="go on from the last checkpoint with resume_from",
            )
        self._plane.take_kept(state)

    def wait(self) -> None:
        """Wait until the last copy is written."""
        try:
            self._durable.wait()
        except CollectiveError as error:
            _logger.warning("%s", error)
