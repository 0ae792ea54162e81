import json

import pytest
import torch

from flodl.checkpoint.format import (
    DTYPE_OF_NAME,
    MAX_HEADER_BYTES,
    Digest,
    Header,
    canonical_json,
    header_bytes,
    header_length,
    parse_header,
    place_tensors,
)
from flodl.core.errors import CheckpointError, CheckpointFormatError, CheckpointVersionError


def head(document):
    return parse_header(json.dumps(document).encode(), name="f")


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_wider_elements_come_first_so_that_all_are_aligned():
    placed = place_tensors(
        [("a", torch.bool, (3,)), ("b", torch.int64, (2,)), ("c", torch.float32, (5,))]
    )
    assert {name: (e.start, e.stop) for name, e in placed.items()} == {
        "b": (0, 16),
        "c": (16, 36),
        "a": (36, 39),
    }
    assert list(placed) == ["a", "b", "c"]


def test_header_survives_writing_and_reading():
    header = Header({"fdl.label": "häuser"}, place_tensors([("w", torch.float16, (2, 3))]))
    data = header_bytes(header)
    assert len(data) % 8 == 0
    assert int.from_bytes(data[:8], "little") == len(data) - 8
    assert parse_header(data[8:], name="f") == header


def test_metadata_is_written_in_sorted_order():
    one = header_bytes(Header({"b": "1", "a": "2"}, {}))
    two = header_bytes(Header({"a": "2", "b": "1"}, {}))
    assert one == two


def test_too_large_header_is_refused_before_anything_is_written():
    with pytest.raises(CheckpointError, match=f"{MAX_HEADER_BYTES} are possible"):
        header_bytes(Header({"x": "y" * MAX_HEADER_BYTES}, {}))


def test_digest_counts_everything_but_itself():
    placed = place_tensors([("w", torch.float32, (1,))])["w"]

    def digest(metadata, data):
        value = Digest(metadata)
        value.begin(placed)
        value.update(data)
        return value.hexdigest()

    base = digest({"a": "1"}, b"1234")
    assert digest({"a": "1", "fdl.digest": "whatever"}, b"1234") == base
    assert digest({"a": "2"}, b"1234") != base
    assert digest({"a": "1"}, b"1235") != base


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "no JSON object"),
        ({"__metadata__": {"a": 1}}, "text to text"),
        ({"w": 3}, "needs exactly"),
        ({"w": {**entry(), "more": 1}}, "needs exactly"),
        ({"w": entry(dtype="F31")}, "unknown dtype 'F31'"),
        ({"w": {**entry(), "dtype": ["F32"]}}, "unknown dtype"),
        ({"w": entry(shape=(-1,))}, "has shape"),
        ({"w": entry(shape=(True, 2))}, "has shape"),
        ({"w": entry(shape=[1] * 65 + [2])}, "has shape"),
        ({"w": entry(offsets=(0, 8, 9))}, "has shape"),
        ({"w": entry(offsets=(0, 12))}, "needs 8 bytes, its offsets give 12"),
        ({"w": entry(offsets=(4, 12))}, "leaves a gap"),
        ({"a": entry(), "b": entry(offsets=(4, 12))}, "overlaps"),
        ({"w": entry(), "__metadata__": {"fdl.aliases": '{"v": "u"}'}}, "alias 'v' of 'u'"),
        ({"w": entry(), "__metadata__": {"fdl.aliases": "3"}}, "text to text"),
        ({"__metadata__": {"fdl.min_reader": "-3"}}, "no version number"),
    ],
)
def test_damage_in_the_header_is_named(document, words):
    with pytest.raises(CheckpointFormatError, match=words):
        head(document)


@pytest.mark.parametrize(
    "text",
    [b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":1,"a":2}', b'{"w":' + b"9" * 5000 + b"}", b"nul"],
)
def test_text_that_is_no_sound_json_is_a_format_error(text):
    with pytest.raises(CheckpointFormatError, match=r"f: damaged header"):
        parse_header(text, name="f")


def test_huge_sizes_are_rejected_without_memory():
    with pytest.raises(CheckpointFormatError, match="needs"):
        head({"w": entry(shape=(1 << 40, 1 << 40), offsets=(0, 8))})


def test_newer_format_names_what_can_read_it():
    metadata = {"fdl.min_reader": "4", "fdl.flodl": "9.1"}
    with pytest.raises(CheckpointVersionError, match=r"format 4.*up to 3\n.*flodl 9\.1"):
        head({"__metadata__": metadata})


def test_unknown_metadata_of_ours_is_ignored():
    assert head({"__metadata__": {"fdl.future": "x"}}).entries == {}


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"PK\x03\x04", "torch.save"),
        (b"\x80\x04", "pickle"),
        (b"abc", "3 bytes long"),
        (b"\xff" * 8, "no checkpoint"),
        (bytes(8), "no checkpoint"),
    ],
)
def test_other_files_are_named_for_what_they_are(start, words):
    with pytest.raises(CheckpointFormatError, match=words):
        header_length(start, name="f")


def test_dtype_names_are_those_of_safetensors():
    safetensors_torch = pytest.importorskip("safetensors.torch")
    for name, dtype in DTYPE_OF_NAME.items():
        assert safetensors_torch._TYPES.get(name, dtype) is dtype


def test_nan_is_no_json():
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": float("nan")})
