"""NCCL without a build against it: the library is found and opened when the process first asks.

Needs the native part, but neither torch nor a CUDA toolkit; version and unique ids also work on a
machine without a GPU. Two NCCLs in one process break each other, so the one that is already
loaded (torch brings one) always comes first.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from flodl_sys import names, native
from flodl_sys.errors import NcclConflictError, NcclError, NcclNotFoundError

__all__ = [
    "UNIQUE_ID_BYTES",
    "Communicator",
    "Nccl",
    "NcclVersion",
    "UniqueId",
    "load",
    "unique_id",
    "version",
]

UNIQUE_ID_BYTES = 128

_log = logging.getLogger(__name__)


class NcclVersion(NamedTuple):
    """An NCCL version; its text is ``2.27.5``."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @classmethod
    def from_code(cls, code: int) -> "NcclVersion":
        """Reads what ``ncclGetVersion`` gives; 2.9 began to write it with wider fields."""
        major, rest = divmod(code, 10_000) if code >= 10_000 else divmod(code, 1_000)
        return cls(major, *divmod(rest, 100))


@dataclass(frozen=True, slots=True)
class UniqueId:
    """Names a communicator that is to be formed: made by one rank, sent to the others."""

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != UNIQUE_ID_BYTES:
            raise NcclError(
                f"a unique id of {len(self.data)} bytes; NCCL's have {UNIQUE_ID_BYTES}",
                hint="pass on all bytes that bytes(unique_id) gave on the first rank",
            )

    def __bytes__(self) -> bytes:
        return self.data

    def __repr__(self) -> str:
        return f"UniqueId({self.data[:8].hex()}...)"


@final
class Communicator:
    """One rank of a communicator; data and streams are addresses, dtypes and operations numbers.

    Nothing can be checked about an address: the caller vouches for it, and keeps it alive until the
    stream is through. Calls release the GIL; `abort` may come from any thread.
    """

    def __init__(self, comm: "native.core.NcclComm") -> None:
        self._comm = comm

    def all_reduce(self, data: int, count: int, dtype: int, op: int, stream: int) -> None:
        """Enqueues a reduction over all ranks, in place.

        Raises:
            NcclCallError: NCCL refused it, or the communicator is closed.
        """
        self._comm.all_reduce(data, count, dtype, op, stream)

    def broadcast(self, data: int, count: int, dtype: int, root: int, stream: int) -> None:
        """Enqueues that all ranks receive what rank ``root`` has, in place.

        Raises:
            NcclCallError: NCCL refused it, or the communicator is closed.
        """
        self._comm.broadcast(data, count, dtype, root, stream)

    def async_error(self) -> int:
        """Returns the code of an error after a call had returned; 0 for none."""
        return self._comm.async_error()

    @property
    def is_open(self) -> bool:
        """Whether it was neither aborted nor closed."""
        return self._comm.is_open

    def abort(self) -> None:
        """Ends what is in flight, on this rank; does nothing a second time or once closed."""
        self._comm.abort()

    def close(self) -> None:
        """Waits for what is in flight and lets go; does nothing once aborted or closed."""
        self._comm.close()


class Nccl:
    """An opened NCCL library; it stays loaded until the process ends."""

    def __init__(self, library: "native.core.NcclLibrary") -> None:
        self._library = library

    @property
    def path(self) -> Path:
        """The file that it was loaded from."""
        return Path(self._library.path)

    def version(self) -> NcclVersion:
        """Returns the version that the library itself reports."""
        return NcclVersion.from_code(self._library.version())

    def unique_id(self) -> UniqueId:
        """Makes a new id; this opens a listening socket that lasts as long as the process.

        Raises:
            NcclCallError: NCCL found no network interface that it can use; ``NCCL_DEBUG=INFO``
                makes it say more.
        """
        return UniqueId(self._library.unique_id())

    def init_all(self, devices: Sequence[int]) -> list[Communicator]:
        """Forms a communicator of devices of this process, on the calling thread.

        Raises:
            NcclCallError: A device cannot be used.
        """
        return [Communicator(comm) for comm in self._library.init_all(devices)]

    def init_rank(self, size: int, unique_id: UniqueId, rank: int) -> Communicator:
        """Joins a communicator as one rank, on the current device; waits for the others.

        Raises:
            NcclCallError: It cannot be formed.
        """
        return Communicator(self._library.init_rank(size, bytes(unique_id), rank))

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Lets the calls within the block start together, as one thread with several ranks must.

        Raises:
            NcclCallError: One of them failed to start.
        """
        self._library.group_start()
        try:
            yield
        finally:
            self._library.group_end()


def load(path: str | os.PathLike[str] | None = None) -> Nccl:
    """Opens NCCL.

    The order: one that is loaded already, ``path``, ``FLODL_NCCL_PATH``, the nvidia-nccl wheel of
    the running environment, the system's. The search does not go on behind a ``path`` or variable
    that does not work: that is an error.

    Raises:
        NcclNotFoundError: Nothing could be loaded; the message lists each place and its reason.
        NcclConflictError: ``path`` is not the library that is already loaded.
        NcclSymbolError: The library lacks a function that is needed.
        NativeUnavailableError: This is a pure build.
    """
    loaded = native.core.NcclLibrary.already_loaded()
    if loaded is not None:
        _check_against_loaded(Path(loaded.path), path)
        return Nccl(loaded)
    asked = path or names.NCCL_PATH.get()
    places = [os.fspath(asked)] if asked else [*_environment_libraries(), native.core.NCCL_SONAME]
    reasons = []
    for place in places:
        try:
            library = native.core.NcclLibrary.open(place)
        except NcclNotFoundError as error:
            reasons.append(f"{place}: {error}")
            continue
        for reason in reasons:
            _log.warning("using the NCCL at %s; another could not be loaded: %s", place, reason)
        return Nccl(library)
    raise NcclNotFoundError(
        "no NCCL library could be loaded: " + "; ".join(reasons),
        hint="install a CUDA build of torch or an nvidia-nccl wheel, "
        f"or set {names.NCCL_PATH.name} to a library",
    )


def version() -> NcclVersion:
    """Returns the version of the NCCL that `load` finds."""
    return load().version()


def unique_id() -> UniqueId:
    """Makes a unique id with the NCCL that `load` finds."""
    return load().unique_id()


def _check_against_loaded(loaded: Path, path: str | os.PathLike[str] | None) -> None:
    variable = names.NCCL_PATH.get()
    if path is not None and not _is_same_file(loaded, Path(path)):
        raise NcclConflictError(
            f"asked for the NCCL at {os.fspath(path)}, but {loaded} is already loaded",
            hint="load it before torch, by LD_PRELOAD",
        )
    if path is None and variable is not None and not _is_same_file(loaded, Path(variable)):
        _log.warning(
            "%s=%s is not used: %s was already loaded, and two NCCLs in one process break; "
            "use LD_PRELOAD instead",
            names.NCCL_PATH.name,
            variable,
            loaded,
        )


def _is_same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _environment_libraries() -> list[str]:
    folders = (Path(entry, "nvidia", "nccl", "lib") for entry in sys.path if entry)
    files = (folder / native.core.NCCL_SONAME for folder in folders)
    return [str(file) for file in files if file.is_file()]
