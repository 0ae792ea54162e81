"""The folder of a cell: checked before training, filled all at once after it.

New files gather in a hidden folder inside; only a finished cell moves them into place. Files of
an earlier run are renamed first, all together. So a cell that fails or is interrupted leaves the
folder as it was.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ddp_bench.errors import RunFolderError
from flodl.core.units import format_bytes

CHECKPOINT = "model.fdl"
LOG = "training.log"
RESULT = "result.json"
DASHBOARD = "dashboard.html"
TIMELINES = ("timeline.json", "timeline.csv", "timeline.html")
ARTIFACTS = (CHECKPOINT, *TIMELINES, LOG, RESULT)
"""In the order they are moved into place: the result, which names a run complete, comes last."""
FILES = (DASHBOARD, *ARTIFACTS)
"""The same with what only some cells have."""

_STAGING = ".new-"
_ELSEWHERE = "choose a folder on a disk with room that you may write, with --output DIR"


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder ``<output>/<model>/<mode>`` of one cell."""

    path: Path
    now: Callable[[], datetime] = _utc_now
    """Clock for the names of files set aside."""

    def check(self) -> None:
        """Make the folder where it is missing, and write and remove a file in it.

        Raises:
            RunFolderError: It cannot be made or written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.path, prefix=".probe-") as probe:
                probe.write(bytes(4096))
                probe.flush()
        except OSError as error:
            raise RunFolderError(
                f"run folder {self.path}: it cannot be written: {_reason(error)}", hint=_ELSEWHERE
            ) from error

    def require_space(self, needed: int) -> None:
        """Check that ``needed`` bytes are free where the folder is.

        Raises:
            RunFolderError: Fewer are.
        """
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise RunFolderError(
                f"run folder {self.path}: the run's files need {format_bytes(needed)}, "
                f"{format_bytes(free)} are free",
                hint=_ELSEWHERE,
            )

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Give a folder for new files; move them into place when the block ends well.

        Raises:
            RunFolderError: A file cannot be moved; everything is back where it was.
        """
        try:
            staged = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.path))
        except OSError as error:
            raise RunFolderError(
                f"run folder {self.path}: it cannot be written: {_reason(error)}", hint=_ELSEWHERE
            ) from error
        try:
            yield staged
            self._commit(staged)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _commit(self, staged: Path) -> None:
        present = [name for name in FILES if (self.path / name).exists()]
        fresh = [name for name in FILES if (staged / name).exists()]
        stamp = self._free_stamp(present)
        moves = [(self.path / name, self.path / _stamped(name, stamp)) for name in present]
        moves += [(staged / name, self.path / name) for name in fresh]
        done: list[tuple[Path, Path]] = []
        try:
            for source, target in moves:
                source.rename(target)
                done.append((source, target))
        except BaseException as error:
            for source, target in reversed(done):
                target.rename(source)
            if isinstance(error, OSError):
                raise RunFolderError(
                    f"run folder {self.path}: files cannot be moved in it: {_reason(error)}",
                    hint=_ELSEWHERE,
                ) from error
            raise

    def _free_stamp(self, names: list[str]) -> str:
        """Return the time, with a counter where two runs end within one second."""
        time = f"{self.now():%Y%m%d-%H%M%S}"
        stamp, count = time, 1
        while any((self.path / _stamped(name, stamp)).exists() for name in names):
            count += 1
            stamp = f"{time}-{count}"
        return stamp


def _stamped(name: str, stamp: str) -> str:
    path = Path(name)
    return f"{path.stem}_{stamp}{path.suffix}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
