"""Finds every library that a libtorch needs, where the dynamic linker would look for it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from flodl_cli.errors import LaunchError
from flodl_cli.host.process import ask
from flodl_cli.libtorch.elf import NotElf, SharedObject, read_shared_object

_SYSTEM_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_CACHE_LINE = re.compile(r"^\s+(\S+) \(.*\) => (\S+)$", re.MULTILINE)
_OURS = re.compile(r"lib(torch|c10|shm|caffe2)[\w-]*\.so.*")
_NOT_FOR_CPP = ("libtorch_python.so",)


def missing_libraries(lib: Path) -> dict[str, list[str]]:
    """Names of libraries that are found nowhere, each with the libraries that need it.

    The search is that of ``ld.so`` for a program that has ``lib`` on its library path; names that
    only Python's own extension modules need are left out.
    """
    search = _Search(lib)
    roots = [
        file
        for file in sorted(lib.glob("*.so*"))
        if _OURS.fullmatch(file.name) and file.name not in _NOT_FOR_CPP
    ]
    return search.missing(roots)


class _Search:
    """One walk over the libraries and what they need."""

    def __init__(self, lib: Path) -> None:
        self._lib = lib
        self._system = _system_libraries()
        self._read: dict[Path, SharedObject | None] = {}

    def missing(self, roots: Iterable[Path]) -> dict[str, list[str]]:
        """What the roots, and all they lead to, need and do not find."""
        missing: dict[str, list[str]] = {}
        waiting: list[tuple[Path, tuple[str, ...]]] = [(root, ()) for root in roots]
        seen: set[Path] = set()
        while waiting:
            file, inherited = waiting.pop()
            read = self._contents(file)
            if file in seen or read is None:
                continue
            seen.add(file)
            passed_on = (*inherited, *_expanded(read.rpath, file))
            for name in read.needed:
                found = self._find(name, file, read, passed_on)
                if found is None:
                    missing.setdefault(name, []).append(file.name)
                elif found not in seen:
                    waiting.append((found, passed_on))
        return missing

    def _find(
        self, name: str, file: Path, read: SharedObject, inherited: tuple[str, ...]
    ) -> Path | None:
        for folder in self._folders(file, read, inherited):
            candidate = Path(folder) / name
            if candidate.is_file():
                return candidate
        return self._system.get(name)

    def _folders(self, file: Path, read: SharedObject, inherited: tuple[str, ...]) -> Iterator[str]:
        if not read.runpath:
            yield from inherited
        yield str(self._lib)
        yield from os.environ.get("LD_LIBRARY_PATH", "").split(":")
        yield from _expanded(read.runpath, file)
        yield from _SYSTEM_FOLDERS

    def _contents(self, file: Path) -> SharedObject | None:
        if file not in self._read:
            try:
                self._read[file] = read_shared_object(file)
            except (OSError, NotElf):
                self._read[file] = None
        return self._read[file]


def _expanded(paths: Iterable[str], file: Path) -> tuple[str, ...]:
    origin = str(file.parent)
    return tuple(path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for path in paths)


def _system_libraries() -> dict[str, Path]:
    """The linker's own cache, by name."""
    tool = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        listing = ask([tool, "-p"]).out
    except LaunchError:  # a system without one keeps its libraries in the usual folders
        return {}
    return {name: Path(path) for name, path in reversed(_CACHE_LINE.findall(listing))}
