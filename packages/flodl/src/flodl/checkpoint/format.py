"""Format 3 of ``.fdl`` files: a safetensors file with a sorted header and ``fdl.*`` metadata.

Layout: 8 bytes little-endian header length, JSON header padded with spaces to a multiple of 8,
tensor data. Nothing here touches a file; bytes and values in, bytes and values out.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import CheckpointError, CheckpointFormatError, CheckpointVersionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT_VERSION = 3
LEGACY_MAGIC = b"FDLC"
MAX_HEADER_BYTES = 64 << 20
MAX_META_BYTES = 1 << 20
NO_DIGEST = "0" * 64

DTYPE_OF_NAME: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
NAME_OF_DTYPE = {dtype: name for name, dtype in DTYPE_OF_NAME.items()}

_LOOKS_LIKE = {
    b"PK\x03\x04": "a zip archive, as torch.save writes (load it with torch.load)",
    b"\x80\x02": "a pickle, which is never loaded because it can run code",
    b"\x80\x04": "a pickle, which is never loaded because it can run code",
    b"\x80\x05": "a pickle, which is never loaded because it can run code",
    b"\x89HDF": "an HDF5 file",
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies in the data section of a file, in bytes from its start."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the head of a file says: string metadata, and the tensors by name."""

    metadata: dict[str, str]
    entries: dict[str, TensorEntry]
    is_legacy: bool = False

    @property
    def data_bytes(self) -> int:
        """Size of the data section."""
        return max((entry.stop for entry in self.entries.values()), default=0)

    @property
    def aliases(self) -> dict[str, str]:
        """Names that share a stored tensor, each with the stored name."""
        return _json_object(self.metadata, "fdl.aliases")

    def names(self) -> list[str]:
        """Return every tensor name, aliases included, sorted."""
        return sorted({*self.entries, *self.aliases})


def place_tensors(
    tensors: Iterable[tuple[str, torch.dtype, tuple[int, ...]]],
) -> dict[str, TensorEntry]:
    """Lay tensors out without gaps, in name order within the same element size.

    Wider elements come first, so that every tensor is aligned to its element size: readers that
    map the file view the bytes in place.
    """
    entries: dict[str, TensorEntry] = {}
    position = 0
    for name, dtype, shape in sorted(tensors, key=lambda item: (-item[1].itemsize, item[0])):
        stop = position + math.prod(shape) * dtype.itemsize
        entries[name] = TensorEntry(name, dtype, shape, position, stop)
        position = stop
    return dict(sorted(entries.items()))


def header_bytes(header: Header) -> bytes:
    """Return the head of a file, length included; equal headers give equal bytes.

    Raises:
        CheckpointError: Names and metadata are longer than a reader accepts.
    """
    document: dict[str, Any] = {"__metadata__": header.metadata}
    for entry in header.entries.values():
        document[entry.name] = {
            "dtype": NAME_OF_DTYPE[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [entry.start, entry.stop],
        }
    text = canonical_json(document).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"names and metadata take {len(text)} bytes; {MAX_HEADER_BYTES} are possible",
            hint="save the parts of the model as several checkpoints",
        )
    return len(text).to_bytes(8, "little") + text


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces; NaN and infinities are refused."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


class Digest:
    """SHA-256 over all metadata but the digest, then each tensor in name order.

    A tensor counts with one line of canonical JSON, ``[name, dtype, shape]`` and a newline, and
    its bytes.
    """

    def __init__(self, metadata: Mapping[str, str]) -> None:
        rest = {key: value for key, value in metadata.items() if key != "fdl.digest"}
        self._sha = hashlib.sha256((canonical_json(rest) + "\n").encode())

    def begin(self, entry: TensorEntry) -> None:
        """Count the identity of the next tensor."""
        identity = [entry.name, NAME_OF_DTYPE[entry.dtype], list(entry.shape)]
        self._sha.update((canonical_json(identity) + "\n").encode())

    def update(self, data: bytes | memoryview) -> None:
        """Count some of its bytes."""
        self._sha.update(data)

    def hexdigest(self) -> str:
        """Return 64 hex digits."""
        return self._sha.hexdigest()


def begins_safetensors(head: bytes) -> bool:
    """Return whether the first nine bytes of a file are a possible length and the header's brace.

    The marks of other formats say less: a length may well begin with the bytes of one of them.
    """
    return head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES


def header_length(head: bytes, *, name: str) -> int:
    """Return the length of the JSON header from the first nine bytes of a file.

    Raises:
        CheckpointFormatError: The bytes cannot begin a safetensors file.
    """
    if begins_safetensors(head):
        return int.from_bytes(head[:8], "little")
    for magic, description in _LOOKS_LIKE.items():
        if head.startswith(magic):
            raise CheckpointFormatError(f"{name}: no checkpoint, but {description}")
    if len(head) < 8:
        raise CheckpointFormatError(
            f"{name}: {len(head)} bytes long; a checkpoint has at least 8",
            hint="the file is truncated or was never written: copy or save it again",
        )
    length = int.from_bytes(head[:8], "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise CheckpointFormatError(
            f"{name}: no checkpoint: its first 8 bytes would mean a header of {length} bytes "
            f"(2 to {MAX_HEADER_BYTES} are possible)"
        )
    return length


def parse_header(text: bytes, *, name: str) -> Header:
    """Return the checked header; the data section must be exactly covered by the tensors.

    Raises:
        CheckpointFormatError: Anything in it is not as the format demands.
        CheckpointVersionError: The file asks for a newer reader.
    """
    try:
        document = json.loads(text.decode(), object_pairs_hook=_unique_keys)
        if not isinstance(document, dict):
            raise _MalformedError("the header is no JSON object")
        metadata = _checked_metadata(document.pop("__metadata__", {}))
        _check_version(metadata, name)
        entries = {key: _checked_entry(key, value) for key, value in sorted(document.items())}
        _check_cover(entries)
        header = Header(metadata, entries)
        _check_aliases(header)
    except (ValueError, RecursionError) as error:
        reason = "its header is nested too deeply" if isinstance(error, RecursionError) else error
        raise CheckpointFormatError(
            f"{name}: damaged header: {reason}", hint="copy or save the file again"
        ) from error
    return header


class _MalformedError(ValueError):
    """Found while reading a header; its text ends up in the error users see."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _MalformedError("a name occurs twice")
    return result


def _checked_metadata(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise _MalformedError("__metadata__ is no map from text to text")
    return value


def _check_version(metadata: dict[str, str], name: str) -> None:
    needed = metadata.get("fdl.min_reader", "0")
    if not (needed.isascii() and needed.isdigit() and len(needed) < 10):
        raise _MalformedError(f"fdl.min_reader is {needed!r}, no version number")
    if int(needed) > FORMAT_VERSION:
        writer = metadata.get("fdl.flodl", "unknown")
        raise CheckpointVersionError(
            f"{name}: needs a reader of format {needed}; this flodl reads up to {FORMAT_VERSION}",
            hint=f"install flodl {writer} or newer, which wrote the file",
        )


def _checked_entry(key: str, value: object) -> TensorEntry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _MalformedError(f"tensor {key!r} needs exactly dtype, shape and data_offsets")
    dtype = DTYPE_OF_NAME.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        raise _MalformedError(f"tensor {key!r} has unknown dtype {value['dtype']!r}")
    shape, offsets = value["shape"], value["data_offsets"]
    # Beyond 64 dimensions torch makes no tensor.
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or len(shape) > 64:
        raise _MalformedError(f"tensor {key!r} has shape {shape!r} and offsets {offsets!r}")
    start, stop = offsets
    size = math.prod(shape) * dtype.itemsize
    if stop - start != size:
        raise _MalformedError(f"tensor {key!r} needs {size} bytes, its offsets give {stop - start}")
    return TensorEntry(key, dtype, tuple(shape), start, stop)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 1 << 63 for item in value
    )


def _check_cover(entries: dict[str, TensorEntry]) -> None:
    position = 0
    for entry in sorted(entries.values(), key=lambda item: (item.start, item.stop)):
        if entry.start != position:
            what = "overlaps the tensor before it" if entry.start < position else "leaves a gap"
            raise _MalformedError(f"tensor {entry.name!r} at byte {entry.start} {what}")
        position = entry.stop


def _check_aliases(header: Header) -> None:
    for alias, stored in header.aliases.items():
        if alias in header.entries or stored not in header.entries:
            raise _MalformedError(f"alias {alias!r} of {stored!r} does not fit the tensors")


def _json_object(metadata: Mapping[str, str], key: str) -> dict[str, str]:
    if key not in metadata:
        return {}
    value = json.loads(metadata[key], object_pairs_hook=_unique_keys)
    return _checked_metadata(value)
