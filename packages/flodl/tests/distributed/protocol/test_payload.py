import pytest

from flodl.distributed.protocol import FrameError
from flodl.distributed.protocol.payload import HEADER_BYTES, PayloadHeader, limit, pack, unpack

HEADER = PayloadHeader(dtype="bfloat16", gen=3, window=7, shard=1, length=5)


def test_header_is_32_bytes_and_comes_back():
    assert HEADER_BYTES == 32
    header, payload = unpack(pack(HEADER, b"12345") + b"12345", limit(10))
    assert header == HEADER
    assert bytes(payload) == b"12345"


@pytest.mark.parametrize("at", [0, 4, 5, 24, 28, 33])
def test_a_changed_byte_is_noticed(at):
    frame = bytearray(pack(HEADER, b"12345") + b"12345")
    frame[at] ^= 0xFF
    with pytest.raises(FrameError):
        unpack(bytes(frame), limit(10))


def test_frames_too_short_or_too_long_are_refused():
    with pytest.raises(FrameError, match="a header alone"):
        unpack(b"x", limit(10))
    with pytest.raises(FrameError) as caught:
        unpack(b"x" * 33, 32)
    assert caught.value.close_code == 1009


def test_the_limit_follows_the_model():
    assert limit(10) == 64 << 20
    assert limit(1 << 30) == 2 << 30
