"""The variants of a ``libtorch`` folder: listed, activated, removed; one writer at a time."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.errors import LibtorchError, UsageError
from flodl_cli.libtorch.home import ACTIVE_FILE
from flodl_cli.libtorch.metadata import ARCH_FILE, Metadata, read_metadata, replace_text
from flodl_cli.names import near
from flodl_cli.terminal import listed

KINDS = ("precompiled", "builds", "wheel", "linked")
DOWNLOADS = ".downloads"
BUILD_CACHE = ".build-cache"
STAGING = ".staging-"
_ID = re.compile(rf"({'|'.join(KINDS)})/(?!\.)[A-Za-z0-9._-]+")
_CASE = re.compile(r"[A-Za-z0-9_-]+")
_LOCK_WAIT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """An installed libtorch.

    ``directory`` holds its ``.arch``; ``prefix`` is the folder with ``lib`` and ``include``,
    another one only where links are not to be had.
    """

    id: str
    directory: Path
    metadata: Metadata

    @property
    def prefix(self) -> Path:
        """The folder with ``lib`` and ``include``."""
        if not (self.directory / "lib").exists() and self.metadata.path:
            return Path(self.metadata.path)
        return self.directory

    @property
    def lib(self) -> Path:
        """The folder of the libraries."""
        return self.prefix / "lib"


class Store:
    """The variants below one ``libtorch`` folder, which need not exist yet.

    Args:
        root: The folder.
        case: Name of the pointer to use; empty for the usual one.
    """

    def __init__(self, root: Path, *, case: str = "") -> None:
        self.root = root
        self._case = case

    def variants(self) -> list[Variant]:
        """All variants whose ``.arch`` can be read, by id."""
        files = (file for kind in KINDS for file in (self.root / kind).glob(f"*/{ARCH_FILE}"))
        ids = sorted(f"{file.parent.parent.name}/{file.parent.name}" for file in files)
        return [self.variant(each) for each in ids if _ID.fullmatch(each)]

    def variant(self, variant_id: str) -> Variant:
        """The variant ``variant_id``.

        Raises:
            UsageError: The id has an impossible form.
            LibtorchError: There is no such variant.
        """
        check_id(variant_id)
        directory = self.root / variant_id
        if not (directory / ARCH_FILE).is_file():
            ids = [each.id for each in self.variants()]
            close = near(variant_id, ids)
            raise LibtorchError(
                f"there is no variant {variant_id!r} in {self.root}; variants: {listed(ids)}",
                hint=f"did you mean {' or '.join(close)}?" if close else _HOW_TO_GET_ONE,
            )
        return Variant(id=variant_id, directory=directory, metadata=read_metadata(directory))

    def active_id(self) -> str | None:
        """The id that the pointer names, or ``None`` when nothing is active.

        Raises:
            LibtorchError: The pointer is damaged, or the named one is not there.
        """
        pointer = self._pointer(self._case)
        try:
            text = pointer.read_text(encoding="utf-8", errors="backslashreplace").strip()
        except FileNotFoundError:
            if not self._case:
                return None
            raise LibtorchError(
                f"FDL_LIBTORCH_CASE={self._case}: there is no {pointer}",
                hint=f"fdl libtorch activate VARIANT --as {self._case}",
            ) from None
        except OSError as error:
            raise LibtorchError(
                f"{pointer} cannot be read: {error.strerror}",
                hint="delete it; fdl libtorch activate VARIANT writes it anew",
            ) from error
        if _ID.fullmatch(text) is None:
            raise LibtorchError(
                f"{pointer} is damaged: {text[:60]!r} is no variant",
                hint="fdl libtorch activate VARIANT writes it anew",
            )
        return text

    def active(self) -> Variant:
        """The active variant.

        Raises:
            LibtorchError: Nothing is active, or the active variant is gone.
        """
        active = self.active_id()
        if active is None:
            raise LibtorchError(
                f"no libtorch is active in {self.root}; "
                f"variants: {listed(each.id for each in self.variants())}",
                hint=_HOW_TO_GET_ONE,
            )
        try:
            return self.variant(active)
        except LibtorchError as error:
            raise LibtorchError(
                f"the active variant is gone: {error.message}",
                hint="fdl libtorch activate VARIANT, or install it again",
            ) from error

    def chosen(self, variant_id: str | None) -> Variant:
        """The variant ``variant_id``, or the active one when that is ``None``."""
        return self.active() if variant_id is None else self.variant(variant_id)

    def activate(self, variant_id: str, *, case: str = "") -> None:
        """Make a variant the active one, or the one of a named case.

        Raises:
            LibtorchError: There is no such variant.
        """
        if case and _CASE.fullmatch(case) is None:
            raise UsageError(f"--as {case!r}: a case is named by letters, digits, - and _")
        variant = self.variant(variant_id)
        with self.locked():
            replace_text(self._pointer(case), f"{variant.id}\n")

    def remove(self, variant_id: str) -> list[str]:
        """Delete a variant and every pointer to it; return the names of those pointers.

        What a variant links to is left alone.

        Raises:
            LibtorchError: There is no such variant, or it cannot be deleted.
        """
        variant = self.variant(variant_id)
        with self.locked():
            cleared = [each for each in self._pointers() if _points_to(each, variant.id)]
            for pointer in cleared:
                pointer.unlink()
            # Moved aside first: a variant is there whole or not at all.
            aside = self.root / f"{STAGING}removed-{os.getpid()}"
            try:
                variant.directory.rename(aside)
                shutil.rmtree(aside)
            except OSError as error:
                raise LibtorchError(
                    f"{variant.directory} cannot be deleted: {error.strerror}"
                ) from error
        return [each.name for each in cleared]

    def leftovers(self) -> list[tuple[Path, int]]:
        """What prune would delete, with sizes: parts, staging folders, build caches."""
        found = [self.root / DOWNLOADS, self.root / BUILD_CACHE]
        found += [
            path
            for folder in (self.root, *self._kind_folders())
            for path in folder.glob(f"{STAGING}*")
        ]
        return [(path, size_of(path)) for path in found if path.exists()]

    def prune(self) -> None:
        """Delete the leftovers."""
        with self.locked():
            for path, _ in self.leftovers():
                shutil.rmtree(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for writing; a second call inside the first is fine.

        Raises:
            LibtorchError: Another fdl holds it for longer than ten seconds.
        """
        # Only writers need it, and every command that is run asks which libtorch is active.
        from filelock import FileLock, Timeout

        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LibtorchError(f"{self.root} cannot be made: {error.strerror}") from error
        holder = self.root / ".lock.pid"
        try:
            with FileLock(self.root / ".lock", timeout=_LOCK_WAIT_S, is_singleton=True):
                with contextlib.suppress(OSError):  # on a full disk prune must still be possible
                    holder.write_text(str(os.getpid()), encoding="utf-8")
                yield
        except Timeout as error:
            pid = (holder.read_text(encoding="utf-8") if holder.is_file() else "") or "unknown"
            raise LibtorchError(
                f"another fdl (process {pid}) is changing {self.root}",
                hint="wait until it has finished",
            ) from error

    def _pointer(self, case: str) -> Path:
        return self.root / (f"{ACTIVE_FILE}.{case}" if case else ACTIVE_FILE)

    def _pointers(self) -> list[Path]:
        return sorted(self.root.glob(f"{ACTIVE_FILE}*"))

    def _kind_folders(self) -> list[Path]:
        return [self.root / kind for kind in KINDS]


_HOW_TO_GET_ONE = (
    "fdl libtorch download fetches one, fdl libtorch link takes the one of an installed torch"
)


def check_id(text: str) -> str:
    """The id, if it has the form of one.

    Raises:
        UsageError: It has not.
    """
    if _ID.fullmatch(text) is None:
        raise UsageError(
            f"{text!r} is no variant: write KIND/NAME, with a kind out of {', '.join(KINDS)}",
            hint="`fdl libtorch list` shows what is installed",
        )
    return text


def size_of(path: Path) -> int:
    """Bytes below ``path``; what links lead to does not count."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(folder) / name).lstat().st_size
    return total


def _points_to(pointer: Path, variant_id: str) -> bool:
    try:
        return pointer.read_text(encoding="utf-8").strip() == variant_id
    except (OSError, UnicodeDecodeError):
        return False
