"""Memory that several processes of a host map: made by one, mapped by the others, then unnamed.

No torch here: the host daemon sweeps what a crash has left.
"""

from __future__ import annotations

import mmap
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import final

from flodl.distributed.collective.errors import CollectiveError

__all__ = ["SHARED_MEMORY", "Segment", "remove_kept", "sweep_shared_memory"]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the system's shared memory, not a temporary folder


@final
class Segment:
    """A mapped file.

    Its memory lives until the last reference to ``map`` is gone; its name until `unlink`.
    """

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self.map = memory

    @classmethod
    def create(cls, name: str, nbytes: int, folders: Sequence[Path]) -> Segment:
        """Make a zeroed segment in the first of the folders that has room for it.

        Raises:
            CollectiveError: None has; the message says why for each.
        """
        reasons = []
        for folder in folders:
            try:
                return cls._create(folder / name, nbytes)
            except OSError as error:
                reasons.append(f"{folder}: {error.strerror}")
        raise CollectiveError(
            f"shared memory {name} of {nbytes} bytes: no room; {'; '.join(reasons)}",
            hint="give the container more shared memory, or the run a run_dir with room",
        )

    @classmethod
    def _create(cls, path: Path, nbytes: int) -> Segment:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                # reserved now: a write into memory that the system then cannot give is a bus error
                os.posix_fallocate(descriptor, 0, nbytes)
            else:
                os.ftruncate(descriptor, nbytes)
            return cls(path, mmap.mmap(descriptor, nbytes))
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(descriptor)

    @classmethod
    def attach(cls, path: Path, nbytes: int) -> Segment:
        """Map a segment that another process of this user made.

        Raises:
            CollectiveError: It is not there, not ours or not of that size.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise CollectiveError(f"shared memory {path}: {error.strerror}") from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise CollectiveError(f"shared memory {path}: not a file of this user")
            if found.st_size != nbytes:
                raise CollectiveError(
                    f"shared memory {path}: has {found.st_size} bytes, expected {nbytes}",
                    hint="the ranks of this host disagree about the payload's size",
                )
            return cls(path, mmap.mmap(descriptor, nbytes))
        finally:
            os.close(descriptor)

    def unlink(self) -> None:
        """Take the name away; whoever has it mapped keeps the memory."""
        self.path.unlink(missing_ok=True)


def remove_kept(prefix: str, folders: Sequence[Path] = (SHARED_MEMORY,)) -> None:
    """Remove the folders in which ranks of a run have kept what they share, once it is over.

    Raises:
        CollectiveError: The prefix is too short to belong to one run.
    """
    _check_prefix(prefix)
    for folder in folders:
        for path in folder.glob(f"{prefix}*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)


def _check_prefix(prefix: str) -> None:
    if len(prefix) < 8:
        raise CollectiveError(f"sweep of {prefix!r}: a prefix of 8 or more characters is needed")


def sweep_shared_memory(prefix: str, folders: Sequence[Path] = (SHARED_MEMORY,)) -> list[str]:
    """Remove segments whose names begin so, left by a crash during formation; return the names.

    Raises:
        CollectiveError: The prefix is too short to belong to one run.
    """
    _check_prefix(prefix)
    removed = []
    for folder in folders:
        if not folder.is_dir():
            continue
        for path in folder.iterdir():
            if path.name.startswith(prefix) and path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)
                removed.append(path.name)
    return sorted(removed)
