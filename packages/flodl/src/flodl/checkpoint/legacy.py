"""Model checkpoints of the Rust original, versions 1 and 2: read only.

Little endian: ``FDLC``, u32 version, 32 bytes of hash, u32 count; each entry: u32 length and
UTF-8 name, u32 number of dimensions, i64 sizes, u8 dtype, u64 length, bytes.
"""

from __future__ import annotations

import math
import struct
from typing import BinaryIO

import torch

from flodl.checkpoint.format import LEGACY_MAGIC, Header, TensorEntry
from flodl.core.errors import CheckpointFormatError, CheckpointVersionError

VERSIONS = (1, 2)
_HASH_BYTES = 32
_MOST_NAME_BYTES = 1 << 16
_MOST_DIMENSIONS = 64
_DTYPES = {
    1: torch.float16,
    2: torch.bfloat16,
    3: torch.float32,
    4: torch.float64,
    5: torch.int32,
    6: torch.int64,
}


def is_legacy(head: bytes) -> bool:
    """Return whether a file that begins so is one of the Rust original's."""
    return head.startswith(LEGACY_MAGIC)


def read_legacy_header(file: BinaryIO, *, name: str) -> Header:
    """Return what a file holds; offsets count from its beginning.

    The names ``prefix/parameter`` become ``prefix.parameter``. The hash is left out: it was
    taken over other things than ours.

    Raises:
        CheckpointFormatError: The file is truncated or damaged.
        CheckpointVersionError: It is of a version that is not known.
    """
    length = file.seek(0, 2)
    file.seek(len(LEGACY_MAGIC))
    reader = _Reader(file, length, name)
    version = reader.number("<I", "version")
    if version not in VERSIONS:
        raise CheckpointVersionError(
            f"{name}: version {version} of the Rust original's format; 1 and 2 can be read"
        )
    reader.take(_HASH_BYTES, "hash")
    entries: dict[str, TensorEntry] = {}
    for _ in range(reader.number("<I", "count")):
        entry = reader.entry()
        if entry.name in entries:
            raise reader.damaged(f"the name {entry.name!r} occurs twice")
        entries[entry.name] = entry
    if file.tell() != length:
        raise reader.damaged(f"{length - file.tell()} bytes follow that do not belong to it")
    metadata = {"fdl.version": str(version), "fdl.kind": "model"}
    return Header(metadata, dict(sorted(entries.items())), is_legacy=True)


def read_legacy_tensors(
    file: BinaryIO, header: Header, *, wanted: set[str]
) -> dict[str, torch.Tensor]:
    """Return the wanted tensors of a checked file."""
    tensors = {}
    for name in sorted(wanted):
        entry = header.entries[name]
        file.seek(entry.start)
        data = bytearray(file.read(entry.stop - entry.start))
        tensors[name] = (
            torch.frombuffer(data, dtype=entry.dtype).reshape(entry.shape)
            if data
            else torch.empty(entry.shape, dtype=entry.dtype)
        )
    return tensors


class _Reader:
    """Takes values off a file and never asks for more than it has."""

    def __init__(self, file: BinaryIO, length: int, name: str) -> None:
        self._file = file
        self._length = length
        self._name = name

    def damaged(self, reason: str) -> CheckpointFormatError:
        return CheckpointFormatError(
            f"{self._name}: damaged checkpoint of the Rust original: {reason}",
            hint="copy the file again, or save it again",
        )

    def take(self, count: int, what: str) -> bytes:
        left = self._length - self._file.tell()
        if count > left:
            raise self.damaged(f"its {what} needs {count} bytes, {left} are left")
        return self._file.read(count)

    def number(self, code: str, what: str) -> int:
        value: int = struct.unpack(code, self.take(struct.calcsize(code), what))[0]
        return value

    def entry(self) -> TensorEntry:
        size = self.number("<I", "name")
        if size > _MOST_NAME_BYTES:
            raise self.damaged(f"a name of {size} bytes")
        try:
            name = self.take(size, "name").decode().replace("/", ".")
        except UnicodeDecodeError as error:
            raise self.damaged("a name is no UTF-8") from error
        dimensions = self.number("<I", "number of dimensions")
        if dimensions > _MOST_DIMENSIONS:
            raise self.damaged(f"{name!r} has {dimensions} dimensions")
        shape = tuple(self.number("<q", "shape") for _ in range(dimensions))
        dtype = _DTYPES.get(self.number("<B", "dtype"))
        stored = self.number("<Q", "length")
        if dtype is None or min(shape, default=0) < 0:
            raise self.damaged(f"{name!r} has shape {list(shape)} and an unknown or bad dtype")
        if stored != math.prod(shape) * dtype.itemsize:
            raise self.damaged(f"{name!r} of shape {list(shape)} has {stored} bytes")
        start = self._file.tell()
        if stored > self._length - start:
            raise self.damaged(f"{name!r} needs {stored} bytes, {self._length - start} are left")
        self._file.seek(start + stored)
        return TensorEntry(name, dtype, shape, start, start + stored)
