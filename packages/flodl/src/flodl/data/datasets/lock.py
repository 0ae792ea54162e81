"""One process at a time: a lock file that the system lets go of when its holder dies."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from flodl.core.errors import DatasetUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 30 * 60.0
_POLL_S = 0.2

logger = logging.getLogger(__name__)


@contextmanager
def locked(
    path: Path,
    *,
    wait_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock file at ``path`` within the block, after waiting for whoever holds it.

    The file stays: removing it would let two processes lock two files of the same name.

    Raises:
        DatasetUnavailableError: It was not free within ``wait_s`` seconds.
    """
    with path.open("a+b") as file:
        deadline, is_told = clock() + wait_s, False
        while not _try_lock(file):
            if clock() >= deadline:
                raise DatasetUnavailableError(
                    f"{path}: another process held the lock for {wait_s:g} s",
                    hint="see whether it still downloads; the lock ends with that process",
                )
            if not is_told:
                logger.info("waiting for another process that downloads: %s", path)
                is_told = True
            sleep(_POLL_S)
        try:
            yield
        finally:
            _unlock(file)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
