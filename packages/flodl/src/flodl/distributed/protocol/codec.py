"""Frames of the control plane: msgpack maps ``{t, v, run, gen, seq, m, b}``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from flodl.distributed.protocol import schema
from flodl.distributed.protocol.errors import TOO_LARGE, FrameError
from flodl.distributed.protocol.messages import MESSAGE_TYPES, WIRE_NAMES, Message
from flodl.distributed.protocol.values import Plain

PROTOCOL = 1
MAX_FRAME_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One message with its address."""

    run: str
    """Nonce of the run; empty before the first ``Accept``."""
    gen: int
    seq: int
    """Number of the message in its direction, from 1; 0: not numbered, such as ``Beat``."""
    member: str
    """Uid of the rank that it comes from or goes to; empty: the host itself."""
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownFrame:
    """A sound frame of a type that this version does not know: answer with ``Nack``."""

    run: str
    gen: int
    seq: int
    member: str
    kind: str


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame.

    Raises:
        FrameError: It would be larger than a peer accepts.
    """
    packed: bytes = msgpack.packb(
        {
            "t": WIRE_NAMES[type(frame.message)],
            "v": PROTOCOL,
            "run": frame.run,
            "gen": frame.gen,
            "seq": frame.seq,
            "m": frame.member,
            "b": schema.write(frame.message),
        }
    )
    _check_size(len(packed))
    return packed


def decode(data: bytes) -> Frame | UnknownFrame:
    """Return the frame that bytes stand for.

    Raises:
        FrameError: They are too many, no msgpack, or no frame; ``close_code`` says which.
    """
    _check_size(len(data))
    header = schema.read(_Header, _unpack(data))
    if header.v != PROTOCOL:
        raise FrameError(f"protocol version {header.v}: this side speaks {PROTOCOL}")
    kind = MESSAGE_TYPES.get(header.t)
    if kind is None:
        return UnknownFrame(
            run=header.run, gen=header.gen, seq=header.seq, member=header.m, kind=header.t
        )
    return Frame(
        run=header.run,
        gen=header.gen,
        seq=header.seq,
        member=header.m,
        message=schema.read(kind, header.b),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Header:
    t: str
    v: int
    run: str
    gen: int
    seq: int
    m: str
    b: dict[str, Plain]


def _check_size(count: int) -> None:
    if count > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {count} bytes: at most {MAX_FRAME_BYTES}", close_code=TOO_LARGE)


def _unpack(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=True)
    # A damaged frame raises one of several unrelated types, and each means the same here.
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"not msgpack: {error}") from error
