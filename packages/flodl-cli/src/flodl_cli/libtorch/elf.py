"""Reads shared objects of Linux: machine, dependencies, search paths, sections; runs nothing."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x03: "x86", 0x15: "ppc64", 0xF3: "riscv"}
_STRING, _NEEDED, _SONAME, _RPATH, _RUNPATH, _STRING_SIZE = 5, 1, 14, 15, 29, 10
_LOAD, _DYNAMIC = 1, 2


class NotElf(ValueError):
    """The file is no 64-bit little-endian ELF file, or it is cut short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedObject:
    """What the dynamic linker would read of a library; paths still hold ``$ORIGIN``."""

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]


def read_shared_object(file: Path) -> SharedObject:
    """Read the dynamic section of ``file``.

    Raises:
        NotElf: It is no such file.
        OSError: It cannot be read.
    """
    with _opened(file) as elf:
        strings = elf.dynamic_strings()
        return SharedObject(
            machine=elf.machine,
            soname=next(iter(strings.get(_SONAME, ())), None),
            needed=tuple(strings.get(_NEEDED, ())),
            rpath=_paths(strings.get(_RPATH)),
            runpath=_paths(strings.get(_RUNPATH)),
        )


def holds_name(file: Path, name: bytes) -> bool:
    """Whether the names of the symbols that ``file`` offers or wants contain ``name``.

    Raises:
        NotElf: It is no such file.
        OSError: It cannot be read.
    """
    with _opened(file) as elf:
        return name in elf.string_table()


@contextmanager
def section(file: Path, name: bytes) -> Iterator[memoryview | None]:
    """The bytes of the section ``name``, or ``None`` when there is none; valid inside ``with``.

    Raises:
        NotElf: It is no such file.
        OSError: It cannot be read.
    """
    with _opened(file) as elf:
        found = elf.section(name)
        if found is None:
            yield None
            return
        start, size = found
        with memoryview(elf.data) as whole, whole[start : start + size] as part:
            yield part


@contextmanager
def _opened(file: Path) -> Iterator[_Elf]:
    with file.open("rb") as stream:
        if stream.read(6) != b"\x7fELF\x02\x01":
            raise NotElf(f"{file} is no 64-bit little-endian ELF file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                yield _Elf(data)
            except (struct.error, IndexError) as error:
                raise NotElf(f"{file} is cut short or damaged") from error


class _Elf:
    """The tables of one file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        (machine,) = struct.unpack_from("<H", data, 18)
        self.machine = _MACHINES.get(machine, f"machine {machine}")
        self._segments_at, self._sections_at = struct.unpack_from("<QQ", data, 32)
        counts = struct.unpack_from("<6H", data, 52)
        self._segment_size, self._segments = counts[1:3]
        self._section_size, self._sections, self._names_index = counts[3:6]

    def section(self, name: bytes) -> tuple[int, int] | None:
        """Offset and size of a section."""
        if not self._sections:
            return None
        names_at = self._section_range(self._names_index)[0]
        for index in range(self._sections):
            (offset,) = struct.unpack_from("<I", self.data, self._section_head(index))
            if self._text(names_at + offset) == name:
                return self._section_range(index)
        return None

    def dynamic_strings(self) -> dict[int, list[str]]:
        """The dynamic entries whose value is a text, by tag."""
        found: dict[int, list[str]] = {}
        entries = list(self._dynamic())
        table = dict(entries).get(_STRING)
        if table is None:
            return found
        start = self._file_offset(table)
        for tag, value in entries:
            if tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH):
                found.setdefault(tag, []).append(
                    self._text(start + value).decode("utf-8", "replace")
                )
        return found

    def string_table(self) -> bytes:
        """The names of all dynamic symbols."""
        entries = dict(self._dynamic())
        if _STRING not in entries:
            return b""
        start = self._file_offset(entries[_STRING])
        return self.data[start : start + entries.get(_STRING_SIZE, 0)]

    def _dynamic(self) -> Iterator[tuple[int, int]]:
        for kind, offset, _, size in self._program_headers():
            if kind == _DYNAMIC:
                for at in range(offset, offset + size, 16):
                    tag, value = struct.unpack_from("<QQ", self.data, at)
                    if tag == 0:
                        return
                    yield tag, value

    def _program_headers(self) -> Iterator[tuple[int, int, int, int]]:
        """Kind, offset in the file, address in memory, size in the file."""
        for index in range(self._segments):
            at = self._segments_at + index * self._segment_size
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", self.data, at)
            yield kind, offset, address, size

    def _file_offset(self, address: int) -> int:
        for kind, offset, start, size in self._program_headers():
            if kind == _LOAD and start <= address < start + size:
                return offset + address - start
        raise IndexError(address)

    def _section_head(self, index: int) -> int:
        return int(self._sections_at + index * self._section_size)

    def _section_range(self, index: int) -> tuple[int, int]:
        offset, size = struct.unpack_from("<QQ", self.data, self._section_head(index) + 24)
        return offset, size

    def _text(self, start: int) -> bytes:
        end = self.data.find(b"\0", start)
        if end < 0:
            raise IndexError(start)
        return self.data[start:end]


def _paths(entries: list[str] | None) -> tuple[str, ...]:
    return tuple(path for entry in entries or () for path in entry.split(":") if path)
