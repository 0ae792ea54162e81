"""Saves what ranks have kept outside their processes, when none of them is left to do it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.checkpoint import save_checkpoint
from flodl.core.errors import FlodlError
from flodl.distributed.averaging.durable import WINDOW, newest_of_run
from flodl.distributed.cluster.orphan import note_orphan, orphan_file
from flodl.distributed.collective.segments import SHARED_MEMORY
from flodl.distributed.controller.commands import Command, SaveKept

if TYPE_CHECKING:
    from torch import Tensor

    from flodl.distributed.averaging.state import State
    from flodl.distributed.cluster.role import RunPlace
    from flodl.distributed.serving.contract import Audience, Heard
    from flodl.distributed.serving.desk import Note

_logger = logging.getLogger(__name__)


class KeptSaver:
    """Stands before the audience of a run, and does the one thing that is asked of nobody else.

    Args:
        audience: Gets everything.
        place: The run.
        save_path: Stem of its checkpoints.
    """

    def __init__(self, audience: Audience, place: RunPlace, save_path: Path | None) -> None:
        self._audience, self._place, self._save_path = audience, place, save_path

    def take(self, command: Command) -> None:
        """Save what was kept where that is the command."""
        if isinstance(command, SaveKept):
            self._save(command.reason)
        self._audience.take(command)

    def direct(self, note: Note) -> None:
        """Pass on what the launcher asks for."""
        self._audience.direct(note)

    def hear(self, uid: str, message: Heard) -> None:
        """Pass on what a rank tells."""
        self._audience.hear(uid, message)

    def _save(self, reason: str) -> None:
        run_dir = Path(self._place.run_dir)
        state = newest_of_run(self._place.run, [SHARED_MEMORY, run_dir])
        if state is None:
            _logger.warning("no rank is left, and none has kept anything")
            return
        file = orphan_file(self._save_path, run_dir)
        meta = {"window": state.meta[WINDOW], "save_reason": reason.partition(":")[0]}
        try:
            save_checkpoint(file, kept_tensors(state), hash="", meta=meta)
            note_orphan(run_dir, file)
        except (FlodlError, OSError) as error:
            _logger.warning("what ranks have shared last cannot be saved: %s", error)
        else:
            _logger.warning("no rank is left: what they shared last was saved to %s", file)


def kept_tensors(state: State) -> dict[str, Tensor]:
    """Return the tensors of a kept state by their names in the model."""
    flat = state.tensors["consensus/flat"]
    slots: Any = state.meta["slots"]
    found = {}
    for name, start, shape in slots:
        count = 1
        for size in shape:
            count *= size
        found[name] = flat[start : start + count].reshape(shape).clone()
    return found | state.part("local/").tensors
