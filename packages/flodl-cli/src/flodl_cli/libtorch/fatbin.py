"""Reads out of a library for which GPU architectures it holds code."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from flodl_cli.libtorch.coverage import parse_arch
from flodl_cli.libtorch.elf import section

_SECTION = b".nv_fatbin"
_MAGIC = 0xBA55ED50
_PTX, _MACHINE_CODE = 1, 2
_ARCH_AT = 28


def cuda_archs(library: Path) -> tuple[str, ...]:
    """Architectures such as ``8.6`` that ``library`` was built for, ``9.0+PTX`` where it has PTX.

    A few kernels are built for further ones; what has not half as many as the most common one
    does not count. Empty when there is no GPU code.

    Raises:
        NotElf: It is no library of Linux.
        OSError: It cannot be read.
    """
    with section(library, _SECTION) as code:
        if code is None:
            return ()
        counts = Counter(_entries(code))
    most = max(counts.values(), default=0)
    built = {entry for entry, count in counts.items() if count * 2 >= most}
    tokens = {arch: f"{arch // 10}.{arch % 10}" for _, arch in built}
    for kind, arch in built:
        if kind == _PTX:
            tokens[arch] += "+PTX"
    return tuple(sorted(tokens.values(), key=lambda token: parse_arch(token) or (0, 0)))


def rocm_archs(lib: Path) -> tuple[str, ...]:
    """The gfx targets that the rocBLAS kernels below ``lib`` are named after."""
    names = (file.name for file in (lib / "rocblas" / "library").glob("*gfx*"))
    parts = {part for name in names for part in name.replace(".", "_").replace("-", "_").split("_")}
    return tuple(sorted(part for part in parts if part.startswith("gfx") and len(part) > 5))


def _entries(code: memoryview) -> Iterator[tuple[int, int]]:
    """Kind and architecture of every entry of every container; padding is skipped."""
    at = 0
    while at + 16 <= len(code):
        magic, _, header_size, body_size = struct.unpack_from("<IHHQ", code, at)
        if magic != _MAGIC:
            at += 8
            continue
        end = min(at + header_size + body_size, len(code))
        yield from _container(code, at + header_size, end)
        at = end if end > at else at + 8


def _container(code: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    while at + _ARCH_AT + 4 <= end:
        kind, _, header_size, payload_size = struct.unpack_from("<HHIQ", code, at)
        if kind in (_PTX, _MACHINE_CODE):
            yield kind, struct.unpack_from("<I", code, at + _ARCH_AT)[0]
        if header_size + payload_size == 0:
            return
        at += header_size + payload_size
