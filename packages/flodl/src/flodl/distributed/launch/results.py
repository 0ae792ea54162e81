"""Results of runs that are over, for the processes of a later run of the same program.

Such a process runs the program from its top, and so comes to the earlier calls of ``run()`` again:
they must give what they gave in the launcher, without training.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

from flodl.core.errors import LaunchError
from flodl.distributed.launch.run_folder import runs_folder


class ResultShelf:
    """Keeps one result a call in a folder that only this user can read.

    Args:
        folder: The folder; ``None`` makes one at the first result, which the program's end removes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path | None:
        """The folder, ``None`` before the first result."""
        return self._folder

    def put(self, ordinal: int, result: object) -> None:
        """Keep the result of a call; it must be something that pickle takes.

        Args:
            ordinal: Which call it was.
            result: What is returned there in later processes.
        """
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="results-", dir=runs_folder()))
            atexit.register(_remove, self._folder, os.getpid())
        file = self._file(ordinal)
        fresh = file.with_suffix(".tmp")
        with fresh.open("wb") as stream:
            pickle.dump(result, stream)
        fresh.replace(file)

    def get(self, ordinal: int) -> Any:
        """Return the result of an earlier call.

        Raises:
            LaunchError: It was not kept.
        """
        if self._folder is not None and self._file(ordinal).exists():
            return pickle.loads(self._file(ordinal).read_bytes())  # noqa: S301 (our own file)
        raise LaunchError(
            f"run {ordinal} of this program left no result, and a process of a later run needs it",
            hint="let each run() of a program end before the next one begins, in the same order "
            "every time the program runs",
        )

    def _file(self, ordinal: int) -> Path:
        assert self._folder is not None
        return self._folder / f"run{ordinal}.pkl"


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a copy of the process must not remove what is not its own
        shutil.rmtree(folder, ignore_errors=True)
