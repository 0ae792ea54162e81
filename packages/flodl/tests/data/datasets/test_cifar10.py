from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError, DatasetFormatError
from flodl.data.datasets import Cifar10, write_cifar10
from flodl.data.datasets.cifar10 import CLASSES, MEMBERS, RECORD_BYTES, RECORDS_PER_FILE

FILE_BYTES = RECORD_BYTES * RECORDS_PER_FILE


def full_file(label: int = 1) -> bytes:
    return (bytes([label]) + bytes(RECORD_BYTES - 1)) * RECORDS_PER_FILE


def archive(members: list[tuple[str, bytes]], *, kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        for name, content in members:
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.type = kind
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_records_become_color_planes_and_labels(records: bytes) -> None:
    data = Cifar10.parse([records], records_per_file=None)
    assert (data.images.dtype, list(data.images.shape)) == (torch.float32, [2, 3, 32, 32])
    assert (data.labels.dtype, data.labels.tolist()) == (torch.int64, [3, 9])
    expected = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    torch.testing.assert_close(data.images[:, :, 5, 7] * 255, expected)
    assert (data.names, data.class_names) == (("image", "label"), CLASSES)


def test_batches_are_joined_in_order_from_bytes_and_gzip(records: bytes, tmp_path: Path) -> None:
    path = tmp_path / "batch.bin"
    path.write_bytes(records[RECORD_BYTES:])
    data = Cifar10.parse([gzip.compress(records), path], records_per_file=None, normalize="none")
    assert data.labels.tolist() == [3, 9, 9]
    assert data.images.dtype == torch.uint8


def test_standard_pixels_use_the_published_figures(records: bytes) -> None:
    data = Cifar10.parse([records], records_per_file=None, normalize="standard")
    found = data.images[0, :, 0, 0]
    expected = [
        (1 / 255 - 0.4914) / 0.2023,
        (2 / 255 - 0.4822) / 0.1994,
        (3 / 255 - 0.4465) / 0.201,
    ]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_files_of_the_real_set_must_have_ten_thousand_records(records: bytes) -> None:
    assert len(Cifar10.parse([full_file()], normalize="none")) == RECORDS_PER_FILE
    with pytest.raises(DatasetFormatError, match="batch 0 has 6146 bytes: expected 30730000"):
        Cifar10.parse([records])
    with pytest.raises(DatasetFormatError, match="batch 1 has more than 30730000 bytes"):
        Cifar10.parse([full_file(), full_file() + b"\x00"])


@pytest.mark.parametrize("length", [0, 1, 3072, 3074, 6145])
def test_partial_records_are_refused(records: bytes, length: int) -> None:
    with pytest.raises(
        DatasetFormatError, match=f"batch 0 has {length} bytes: expected a multiple"
    ):
        Cifar10.parse([records[:length]], records_per_file=None)


def test_a_label_above_nine_names_its_batch_and_record(records: bytes) -> None:
    wrong = bytearray(records)
    wrong[RECORD_BYTES] = 10
    with pytest.raises(DatasetFormatError, match="label 10 of batch 1, record 1") as caught:
        Cifar10.parse([records, bytes(wrong)], records_per_file=None)
    assert caught.value.offset == RECORD_BYTES


def test_no_batches_and_bare_bytes_are_refused(records: bytes) -> None:
    for batches in ([], records, "data_batch_1.bin"):
        with pytest.raises(ConfigError, match="expected a sequence of one or more files"):
            Cifar10.parse(batches, records_per_file=None)  # type: ignore[arg-type]


def test_there_are_ten_class_names(records: bytes) -> None:
    with pytest.raises(ConfigError, match="expected 10 of them"):
        Cifar10.parse([records], records_per_file=None, class_names=["a", "b"])


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    for source in (data, b"\x1f\x8b" + data):
        with pytest.raises(DatasetFormatError):
            Cifar10.parse([source], records_per_file=None)
        with pytest.raises(DatasetFormatError):
            Cifar10.from_archive(source)


def test_an_archive_gives_the_split_asked_for_whatever_else_is_in_it(tmp_path: Path) -> None:
    extra = [("readme.html", b"<html>"), ("batches.meta.txt", b"airplane\n")]
    train = [(name, full_file(place)) for place, name in enumerate(MEMBERS["train"])]
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(archive([*extra, *reversed(train), ("test_batch.bin", full_file(9))]))
    data = Cifar10.from_archive(path, "train", normalize="none")
    assert data.labels[::RECORDS_PER_FILE].tolist() == [0, 1, 2, 3, 4]
    test = Cifar10.from_archive(path.read_bytes(), "test", normalize="none")
    assert test.labels.unique().tolist() == [9]
    with pytest.raises(ConfigError, match="split='valid'"):
        Cifar10.from_archive(path, "valid")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "kind", "says"),
    [
        ([], tarfile.REGTYPE, "the archive lacks test_batch.bin"),
        ([("other.bin", b"x")], tarfile.REGTYPE, "the archive lacks test_batch.bin"),
        ([("test_batch.bin", b"x")], tarfile.REGTYPE, "has 1 bytes: expected 30730000"),
        ([("test_batch.bin", b"")], tarfile.SYMTYPE, "is not a regular file"),
        ([("test_batch.bin", b"")], tarfile.DIRTYPE, "is not a regular file"),
        ([("../test_batch.bin", b"x")], tarfile.REGTYPE, "the archive lacks test_batch.bin"),
    ],
    ids=["empty", "other", "short", "link", "folder", "path"],
)
def test_unsound_archives_are_refused(
    members: list[tuple[str, bytes]], kind: bytes, says: str
) -> None:
    with pytest.raises(DatasetFormatError, match=says):
        Cifar10.from_archive(archive(members, kind=kind), "test")


def test_a_member_given_twice_is_refused() -> None:
    twice = [("test_batch.bin", full_file())] * 2
    with pytest.raises(DatasetFormatError, match="has cifar-10-batches-bin/test_batch.bin twice"):
        Cifar10.from_archive(archive(twice), "test")


def test_truncated_archives_are_refused() -> None:
    whole = archive([("test_batch.bin", full_file())])
    for length in (10, 100, len(whole) // 2, len(whole) - 9):
        with pytest.raises(DatasetFormatError):
            Cifar10.from_archive(whole[:length], "test")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    labels = torch.tensor([0, 9, 5, 1])
    for name in ("batch.bin", "batch.bin.gz"):
        write_cifar10(tmp_path / name, images, labels)
        data = Cifar10.parse([tmp_path / name], records_per_file=None, normalize="none")
        assert torch.equal(data.images, images)
        assert torch.equal(data.labels, labels)


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (torch.zeros(1, 3, 32, 32), torch.tensor([1]), "expected torch.uint8"),
        (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.tensor([1]), "with labels"),
        (torch.zeros(0, 3, 32, 32, dtype=torch.uint8), torch.tensor([]), "N above 0"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.tensor([10]), "expected 0 to 9"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.tensor([-1]), "expected 0 to 9"),
    ],
    ids=["float", "counts", "empty", "high", "negative"],
)
def test_other_records_are_not_written(
    images: torch.Tensor, labels: torch.Tensor, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        write_cifar10(tmp_path / "batch.bin", images, labels)
    assert not list(tmp_path.iterdir())
