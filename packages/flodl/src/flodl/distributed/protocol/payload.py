"""Header of the frames that carry tensors through the controller (star topology)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from flodl.distributed.protocol.errors import TOO_LARGE, FrameError

MAGIC = b"FLDT"
VERSION = 1
DTYPES = ("float32", "bfloat16", "float64", "float16", "int64")
SMALLEST_LIMIT = 64 << 20

# magic, version, dtype, two bytes of padding, generation, window, shard, length, checksum
_LAYOUT = struct.Struct("<4sBB2xIIIQI")
HEADER_BYTES = _LAYOUT.size


@dataclass(frozen=True, kw_only=True, slots=True)
class PayloadHeader:
    """What a tensor frame holds."""

    dtype: str
    gen: int
    window: int
    shard: int
    length: int
    """Bytes of the payload."""


def pack(header: PayloadHeader, payload: bytes | memoryview) -> bytes:
    """Return the 32 bytes that go before a payload."""
    return _LAYOUT.pack(
        MAGIC,
        VERSION,
        DTYPES.index(header.dtype),
        header.gen,
        header.window,
        header.shard,
        header.length,
        zlib.crc32(payload),
    )


def limit(model_bytes: int) -> int:
    """Return how many bytes a tensor frame of a model may have."""
    return max(SMALLEST_LIMIT, 2 * model_bytes)


def unpack(frame: bytes, most: int) -> tuple[PayloadHeader, memoryview]:
    """Return header and payload of a tensor frame; the payload is a view of it.

    Args:
        frame: What arrived.
        most: Bytes that it may have, as ``limit`` says.

    Raises:
        FrameError: It is too large, damaged, or none of ours.
    """
    if len(frame) > most:
        raise FrameError(f"frame of {len(frame)} bytes: at most {most}", close_code=TOO_LARGE)
    if len(frame) < HEADER_BYTES:
        raise FrameError(f"frame of {len(frame)} bytes: a header alone has {HEADER_BYTES}")
    magic, version, dtype, gen, window, shard, length, checksum = _LAYOUT.unpack_from(frame)
    payload = memoryview(frame)[HEADER_BYTES:]
    if magic != MAGIC or version != VERSION or dtype >= len(DTYPES):
        raise FrameError(f"header {magic!r} version {version} dtype {dtype}: not one of ours")
    if length != len(payload):
        raise FrameError(f"payload of {len(payload)} bytes: its header says {length}")
    if zlib.crc32(payload) != checksum:
        raise FrameError("payload does not have the checksum of its header")
    header = PayloadHeader(dtype=DTYPES[dtype], gen=gen, window=window, shard=shard, length=length)
    return header, payload
