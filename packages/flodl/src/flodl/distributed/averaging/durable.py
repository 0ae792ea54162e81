"""The last consensus in memory that outlives the processes of a host.

Two files are written in turn and the name of the whole one is its commit: a rank that dies in the
middle of writing leaves the one before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast, final

from flodl.distributed.averaging.state import State
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.segments import SHARED_MEMORY

__all__ = ["WINDOW", "DurableConsensus", "newest", "newest_of_run", "run_prefix"]

WINDOW = "window"
"""Under which a kept state says of which window it is the result."""
_DIGEST_BYTES = 32
_SPARE_BYTES = 64 << 20  # left free: others on the host need shared memory too


@final
class DurableConsensus:
    """Keeps the newest state of a host, double-buffered, and written on a thread of its own.

    Args:
        name: Of the folder, such as ``flodl-<run>-<uid>``; of this user only.
        folders: Where it may be made; the first with room for two copies is taken, each time anew.
    """

    def __init__(self, name: str, folders: Sequence[Path] = (SHARED_MEMORY,)) -> None:
        self._places = [folder / name for folder in folders]
        self._thread: threading.Thread | None = None
        self._failure: OSError | CollectiveError | None = None
        self._count = 0

    def write(self, state: State) -> None:
        """Begin to write a state; returns when it is copied, so that it may change.

        A write that is not over is waited for.

        Raises:
            CollectiveError: The write before failed, such as for lack of room.
        """
        self.wait()
        data = state.to_bytes()
        self._thread = threading.Thread(
            target=self._write, args=(data,), name="flodl-durable", daemon=True
        )
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether a write is not over."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the last write is over.

        Raises:
            CollectiveError: It failed.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise CollectiveError(f"the consensus could not be kept: {failure}") from failure

    def remove(self) -> None:
        """Remove what is there, at the end of the run."""
        with contextlib.suppress(CollectiveError):
            self.wait()
        for place in self._places:
            shutil.rmtree(place, ignore_errors=True)

    def _write(self, data: bytes) -> None:
        try:
            place = self._room_for(len(data))
            self._count += 1
            file = place / f"consensus-{self._count % 2}"
            # removed first: its name must never stand for half of a newer state
            file.unlink(missing_ok=True)
            draft = place / "draft"
            with draft.open("wb") as stream:
                stream.write(hashlib.sha256(data).digest())
                stream.write(self._count.to_bytes(8, "big"))
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            draft.rename(file)
        except (OSError, CollectiveError) as error:
            self._failure = error

    def _room_for(self, nbytes: int) -> Path:
        reasons = []
        for place in self._places:
            try:
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                free = shutil.disk_usage(place).free
            except OSError as error:
                reasons.append(f"{place}: {error.strerror}")
                continue
            held = sum(file.stat().st_size for file in place.iterdir())
            if free + held >= 2 * nbytes + _SPARE_BYTES:
                return place
            reasons.append(f"{place}: {free} bytes free, {2 * nbytes + _SPARE_BYTES} needed")
        raise CollectiveError("no room; " + "; ".join(reasons))


def newest(name: str, folders: Sequence[Path] = (SHARED_MEMORY,)) -> State | None:
    """Return the newest whole state under a name, or ``None``; torn files are passed over."""
    found = [item for folder in folders for item in _whole_states(folder / name)]
    return State.from_bytes(max(found)[1]) if found else None


def newest_of_run(run: str, folders: Sequence[Path] = (SHARED_MEMORY,)) -> State | None:
    """Return the state of the latest window that any rank of a run has kept on this host."""
    places = {path.name for folder in folders for path in folder.glob(f"{run_prefix(run)}*")}
    states = [state for place in places if (state := newest(place, folders)) is not None]
    return max(states, key=lambda state: cast("int", state.meta[WINDOW]), default=None)


def run_prefix(run: str) -> str:
    """Return how the names of all that a run keeps begin."""
    return f"flodl-{run}-"


def _whole_states(place: Path) -> Iterator[tuple[int, bytes]]:
    for file in sorted(place.glob("consensus-*")):
        data = file.read_bytes()
        digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES + 8 :]
        if hashlib.sha256(body).digest() == digest:
            yield int.from_bytes(data[_DIGEST_BYTES : _DIGEST_BYTES + 8], "big"), body
