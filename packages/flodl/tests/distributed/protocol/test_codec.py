import dataclasses
import typing

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.distributed.protocol import (
    MAX_FRAME_BYTES,
    Frame,
    FrameError,
    UnknownFrame,
    decode,
    encode,
    schema,
)
from flodl.distributed.protocol.messages import (
    MESSAGE_TYPES,
    WIRE_NAMES,
    Beat,
    Bye,
    Lease,
    LogLine,
    ReduceGo,
    RunCallback,
)

ROWS = """
    hello accept reject world form_ack state_sync lease lease_ack progress window_report sync_now
    at_barrier reduce_go reduced commit throttle resume reconfigure quiesced run_callback
    callback_done rank_error rank_exit fence fenced telemetry alert log stop abort bye beat nack
""".split()

small = st.integers(-(2**40), 2**40)
text = st.text(max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | small | st.floats(allow_nan=False) | text | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


def values(kind):
    """Values of a field's type."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, localns={"Plain": object})
        names = [field.name for field in dataclasses.fields(kind)]
        return st.builds(kind, **{name: values(hints[name]) for name in names})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is dict:
        return st.dictionaries(text, values(arguments[1]), max_size=3)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if arguments:
        return st.one_of(*map(values, arguments))
    return {
        int: small,
        float: st.floats(allow_nan=False),
        str: text,
        bool: st.booleans(),
        bytes: st.binary(max_size=8),
        object: plain,
        type(None): st.none(),
    }[kind]


def frame(message, **options):
    return Frame(
        **{"run": "r", "gen": 1, "seq": 2, "member": "h/g/0", "message": message} | options
    )


def test_every_row_of_the_control_plane_has_a_message():
    assert set(ROWS) <= set(MESSAGE_TYPES)
    assert set(MESSAGE_TYPES) - set(ROWS) == {"ready", "synced", "store_request", "store_reply"}


@pytest.mark.parametrize("kind", list(WIRE_NAMES), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_message_arrives_as_it_was_sent(kind, data):
    sent = frame(data.draw(values(kind)))
    assert decode(encode(sent)) == sent


def test_a_frame_is_the_map_that_the_protocol_names():
    packed = msgpack.unpackb(encode(frame(Beat(monotonic_ms=1.5, acked_seq=7))))
    assert packed == {
        "t": "beat", "v": 1, "run": "r", "gen": 1, "seq": 2, "m": "h/g/0",
        "b": {"monotonic_ms": 1.5, "acked_seq": 7},
    }  # fmt: skip


def changed(message, **body):
    packed = msgpack.unpackb(encode(frame(message)))
    packed["b"] |= body
    return packed


def test_fields_that_are_not_known_are_ignored():
    packed = changed(Bye(), future=[1, {"a": None}])
    packed["x"] = 1
    assert decode(msgpack.packb(packed)) == frame(Bye())


def test_a_type_that_is_not_known_is_told_apart_from_damage():
    packed = changed(Bye())
    packed["t"] = "levitate"
    assert decode(msgpack.packb(packed)) == UnknownFrame(
        run="r", gen=1, seq=2, member="h/g/0", kind="levitate"
    )


@pytest.mark.parametrize(
    "body",
    [
        {"lease_id": "one"},
        {"lease_id": True},
        {"lease_id": 1.5},
        {"ranges": 3},
        {"ranges": [[1, 2, 3]]},
        {"ranges": [["a", "b"]]},
        {"epoch": None},
    ],
)
def test_a_field_of_the_wrong_type_is_malformed(body):
    lease = Lease(lease_id=1, epoch=0, data_epoch=0, ranges=((0, 8),), batch_size=8)
    with pytest.raises(FrameError) as caught:
        decode(msgpack.packb(changed(lease, **body)))
    assert caught.value.close_code == 4400


def test_a_missing_field_is_named():
    packed = changed(Beat(monotonic_ms=0, acked_seq=0))
    del packed["b"]["acked_seq"]
    with pytest.raises(FrameError, match="Beat: no acked_seq"):
        decode(msgpack.packb(packed))


def test_another_version_is_refused():
    packed = changed(Bye())
    packed["v"] = 2
    with pytest.raises(FrameError, match="version 2"):
        decode(msgpack.packb(packed))


def test_a_value_that_is_not_plain_is_refused():
    callback = RunCallback(kind="eval", epoch=0, version=1)
    with pytest.raises(FrameError, match="map key 1"):
        schema.read(RunCallback, schema.write(callback) | {"meta": {"a": {1: 2}}})
    deep = None
    for _ in range(60):
        deep = [deep]
    with pytest.raises(FrameError, match="nested deeper"):
        decode(msgpack.packb(changed(callback, meta={"a": deep})))


def test_frames_over_the_limit_are_refused_both_ways():
    with pytest.raises(FrameError) as caught:
        encode(frame(LogLine(level="info", text="x" * MAX_FRAME_BYTES)))
    assert caught.value.close_code == 1009
    with pytest.raises(FrameError) as caught:
        decode(b"x" * (MAX_FRAME_BYTES + 1))
    assert caught.value.close_code == 1009


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_typed_error(data):
    try:
        decode(data)
    except FrameError as error:
        assert error.close_code == 4400


@given(st.binary(max_size=8), st.integers(0, 400))
def test_damaged_frames_are_typed_errors(noise, at):
    data = encode(frame(RunCallback(kind="eval", epoch=0, version=1, meta={"a": [1.5, "b"]})))
    at = min(at, len(data))
    try:
        decode(data[:at] + noise + data[at + len(noise) :])
    except FrameError as error:
        assert error.close_code == 4400


def test_weights_of_a_reduce_are_shares_of_one():
    go = ReduceGo(
        window=1, total_weight=33.0, gamma=1.0, participants=3, deadline=1.0, excluded=("c",)
    )
    assert go.weight("a", 23) + go.weight("b", 10) == 1
    assert (go.weight("c", 7), go.weight("a", 0)) == (0, 0)
