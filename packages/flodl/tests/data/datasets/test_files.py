from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import DatasetFormatError, DatasetUnavailableError
from flodl.data.datasets.files import SIZE_LIMIT, ByteReader, write_whole


def content(source: bytes) -> bytes:
    with ByteReader(source) as reader:
        return bytes(reader.take(SIZE_LIMIT))


@given(st.binary(max_size=2000))
def test_gzip_is_unpacked_by_sight(payload: bytes) -> None:
    assert content(gzip.compress(payload)) == payload
    assert payload[:2] == b"\x1f\x8b" or content(payload) == payload


def test_paths_and_bytes_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"0123456789")
    for source in (path, str(path), b"0123456789", bytearray(b"0123456789")):
        with ByteReader(source) as reader:
            assert (bytes(reader.take(4)), reader.offset) == (b"0123", 4)
            assert bytes(reader.take(100)) == b"456789"


def test_every_truncation_of_gzip_is_a_format_error() -> None:
    packed = gzip.compress(bytes(range(256)) * 4)
    for length in range(2, len(packed)):
        with pytest.raises(DatasetFormatError, match="gzip data are cut off"):
            content(packed[:length])


def test_a_flipped_byte_in_gzip_is_a_format_error() -> None:
    packed = bytearray(gzip.compress(bytes(range(256)) * 4))
    packed[-6] ^= 1  # inside the CRC
    with pytest.raises(DatasetFormatError, match="bad gzip data: CRC check failed"):
        content(bytes(packed))


def test_garbage_after_gzip_is_a_format_error() -> None:
    with pytest.raises(DatasetFormatError, match="bad gzip data"):
        content(gzip.compress(b"data") + b"garbage")


def test_a_missing_file_and_a_folder_are_unavailable(tmp_path: Path) -> None:
    with pytest.raises(DatasetUnavailableError, match=r"absent: cannot be opened: No such file"):
        ByteReader(tmp_path / "absent")
    with pytest.raises(DatasetUnavailableError, match="cannot be opened: Is a directory"):
        ByteReader(tmp_path)


def test_errors_name_the_source_and_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"0123")
    with ByteReader(path) as reader:
        reader.take(3)
        error = reader.error("unexpected")
    assert str(error) == f"{path}, byte 3: unexpected"
    assert (error.source, error.offset, error.reason) == (str(path), 3, "unexpected")


def test_written_files_are_the_same_each_time_and_packed_for_gz(tmp_path: Path) -> None:
    payload = b"abc" * 100
    for name in ("one.gz", "two.gz", "plain"):
        write_whole(tmp_path / name, payload)
    assert (tmp_path / "plain").read_bytes() == payload
    assert gzip.decompress((tmp_path / "one.gz").read_bytes()) == payload
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "data"
    target.write_bytes(b"old")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert target.read_bytes() == b"old"
