from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError, DatasetFormatError, DatasetUnavailableError
from flodl.data.datasets import Shakespeare

TEXT = "to be, or not to be"


def test_windows_follow_each_other_and_targets_are_one_character_later() -> None:
    data = Shakespeare.parse(TEXT, seq_len=4)
    assert (len(data), data.seq_len, data.names) == (4, 4, ("input", "target"))
    assert (data.inputs.dtype, list(data.inputs.shape)) == (torch.int64, [4, 4])
    assert [data.decode(row) for row in data.inputs] == ["to b", "e, o", "r no", "t to"]
    assert [data.decode(row) for row in data.targets] == ["o be", ", or", " not", " to "]


def test_the_vocabulary_is_sorted_by_code_point() -> None:
    data = Shakespeare.parse("bé aß🎭b", seq_len=2)
    assert data.idx_to_char == data.class_names == (" ", "a", "b", "ß", "é", "🎭")
    assert data.vocab_size == 6
    assert data.char_to_idx["é"] == 4


@given(st.text(min_size=2, max_size=60), st.integers(1, 10), st.integers(1, 12))
def test_windows_are_those_of_the_text_for_any_stride(text: str, size: int, stride: int) -> None:
    if len(text) < size + 1:
        with pytest.raises(DatasetFormatError, match=f"{len(text)} characters"):
            Shakespeare.parse(text, size, stride)
        return
    data = Shakespeare.parse(text, size, stride)
    starts = range(0, len(text) - size, stride)
    assert [data.decode(row) for row in data.inputs] == [text[i : i + size] for i in starts]
    assert [data.decode(row) for row in data.targets] == [
        text[i + 1 : i + 1 + size] for i in starts
    ]
    assert len(Shakespeare.parse(text, size)) == (len(text) - 1) // size


def test_text_bytes_and_files_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "input.txt"
    path.write_text("naïve text", encoding="utf-8")
    parsed = [Shakespeare.parse(source, 3) for source in ("naïve text", path.read_bytes(), path)]
    assert len({data.idx_to_char for data in parsed}) == 1
    assert all(torch.equal(data.inputs, parsed[0].inputs) for data in parsed)


def test_lengths_count_characters_not_bytes() -> None:
    assert len(Shakespeare.parse("éé", 1)) == 1
    with pytest.raises(DatasetFormatError, match="2 characters: windows of seq_len=2 need 3"):
        Shakespeare.parse("éé", 2)


def test_bytes_that_are_not_utf8_are_refused_at_their_offset() -> None:
    with pytest.raises(DatasetFormatError, match="byte 3: not UTF-8") as caught:
        Shakespeare.parse(b"abc\xff\xfe", 1)
    assert caught.value.offset == 3


def test_a_missing_file_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailableError, match="absent"):
        Shakespeare.parse(tmp_path / "absent", 1)


@pytest.mark.parametrize(("size", "stride"), [(0, None), (-1, None), (2, 0), (1.5, None)])
def test_sizes_below_one_are_refused(size: int, stride: int | None) -> None:
    with pytest.raises(ConfigError, match="expected a whole number of at least 1"):
        Shakespeare.parse(TEXT, size, stride)


def test_text_goes_there_and_back() -> None:
    data = Shakespeare.parse(TEXT, 4)
    assert data.decode(data.encode("not to")) == "not to"
    assert data.encode("").dtype == torch.int64


def test_unknown_characters_and_positions_are_errors() -> None:
    data = Shakespeare.parse(TEXT, 4)
    with pytest.raises(ValueError, match="character 'z' is not among the 8 of this text"):
        data.encode("zoo")
    for position in (8, -1):
        with pytest.raises(IndexError, match=rf"position {position} is outside the vocabulary"):
            data.decode([position])
    assert data.decode([0, 99, -1], errors="replace") == " \ufffd\ufffd"


def test_split_keeps_the_vocabulary_and_every_window() -> None:
    data = Shakespeare.parse(TEXT * 20, 4)
    train, test = data.split(0.9)
    assert len(train) == int(len(data) * 0.9)
    assert len(train) + len(test) == len(data)
    assert train.idx_to_char is data.idx_to_char is test.idx_to_char
    assert torch.equal(torch.cat([train.inputs, test.inputs]), data.inputs)


@given(st.integers(1, 8), st.integers(1, 10), st.floats(0.2, 0.8))
def test_no_input_character_is_in_both_parts(size: int, stride: int, fraction: float) -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 100)))  # every character once
    train, test = Shakespeare.parse(text, size, stride).split(fraction)
    assert set(train.inputs.unique().tolist()).isdisjoint(test.inputs.unique().tolist())


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 1.5, 0.01])
def test_a_part_without_windows_is_refused(fraction: float) -> None:
    with pytest.raises(ConfigError, match="of 4 windows leaves a part without windows"):
        Shakespeare.parse(TEXT, 4).split(fraction)
