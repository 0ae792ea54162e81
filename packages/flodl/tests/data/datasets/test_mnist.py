from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError, DatasetFormatError
from flodl.data import DataLoader
from flodl.data.datasets import Mnist, write_idx
from flodl.data.datasets.mnist import IMAGES_MAGIC, LABELS_MAGIC, read_idx


def test_images_and_labels_have_their_shapes_and_types(
    idx_images: bytes, idx_labels: bytes
) -> None:
    data = Mnist.parse(idx_images, idx_labels)
    assert (data.images.dtype, list(data.images.shape)) == (torch.float32, [3, 1, 2, 2])
    assert (data.labels.dtype, data.labels.tolist()) == (torch.int64, [7, 0, 9])
    expected = torch.tensor([[80 / 255, 100 / 255], [120 / 255, 140 / 255]])
    torch.testing.assert_close(data.images[1, 0], expected)
    assert (len(data), data.names, len(data.class_names)) == (3, ("image", "label"), 10)
    image, label = data.get_batch([2, 0])
    assert label.tolist() == [9, 7]
    assert torch.equal(image[1], data.images[0])


def test_gzipped_and_plain_files_read_alike(
    idx_images: bytes, idx_labels: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx_images))
    plain = Mnist.parse(idx_images, idx_labels)
    assert torch.equal(Mnist.parse(path, gzip.compress(idx_labels)).images, plain.images)


def test_pixels_can_stay_bytes_or_be_standardized(idx_images: bytes, idx_labels: bytes) -> None:
    raw = Mnist.parse(idx_images, idx_labels, normalize="none").images
    assert (raw.dtype, raw.flatten().tolist()) == (torch.uint8, list(range(0, 240, 20)))
    standard = Mnist.parse(idx_images, idx_labels, normalize="standard").images
    torch.testing.assert_close(standard, (raw.float() / 255 - 0.1307) / 0.3081)
    with pytest.raises(ConfigError, match="normalize='zero'"):
        Mnist.parse(idx_images, idx_labels, normalize="zero")  # type: ignore[arg-type]


def test_a_parsed_set_goes_straight_into_a_loader(idx_images: bytes, idx_labels: bytes) -> None:
    loader = (
        DataLoader.from_batch_dataset(Mnist.parse(idx_images, idx_labels)).batch_size(3).build()
    )
    assert loader.is_resident
    assert next(loader.epoch(0))["label"].sum() == 16


def test_every_truncation_is_refused_with_its_length(idx_images: bytes, idx_labels: bytes) -> None:
    for whole, magic, header in ((idx_images, IMAGES_MAGIC, 16), (idx_labels, LABELS_MAGIC, 8)):
        for length in range(len(whole)):
            left = length - header if length >= header else length
            with pytest.raises(DatasetFormatError, match=f" after {left} ") as caught:
                read_idx(whole[:length], magic)
            assert caught.value.offset == length


def test_a_truncated_file_names_itself_and_where_it_ends(tmp_path: Path, idx_images: bytes) -> None:
    path = tmp_path / "train-images"
    path.write_bytes(idx_images[:20])
    with pytest.raises(DatasetFormatError) as caught:
        read_idx(path, IMAGES_MAGIC)
    assert str(caught.value) == (
        f"{path}, byte 20: the data end after 4 of the 12 bytes that the header promises"
    )


def test_swapped_files_are_recognized(idx_images: bytes, idx_labels: bytes) -> None:
    with pytest.raises(DatasetFormatError, match="magic number 2049: expected 2051 for images"):
        Mnist.parse(idx_labels, idx_images)
    with pytest.raises(DatasetFormatError, match="these look like labels"):
        read_idx(idx_labels, IMAGES_MAGIC)
    with pytest.raises(DatasetFormatError, match="these look like images"):
        read_idx(idx_images, LABELS_MAGIC)


def test_every_flipped_bit_of_the_magic_number_is_refused(idx_images: bytes) -> None:
    for bit in range(32):
        flipped = bytearray(idx_images)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DatasetFormatError, match="magic number"):
            read_idx(bytes(flipped), IMAGES_MAGIC)


def test_bytes_after_the_data_are_refused_at_their_offset(idx_labels: bytes) -> None:
    with pytest.raises(DatasetFormatError, match="byte 11: bytes after the end") as caught:
        read_idx(idx_labels + b"\x00", LABELS_MAGIC)
    assert caught.value.offset == 11


@pytest.mark.parametrize("shape", [(0, 2, 2), (3, 0, 2), (3, 2, 0)])
def test_dimensions_of_zero_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(DatasetFormatError, match="expected none of them 0"):
        read_idx(struct.pack(">4I", IMAGES_MAGIC, *shape), IMAGES_MAGIC)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((2**32 - 1, 2**32 - 1, 2**32 - 1), "promise more than 1 GiB"),
        ((2**15 + 1, 2**8, 2**7), "promise more than 1 GiB"),
        ((2**15, 2**8, 2**7), "the data end after 4 of the 1073741824 bytes"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_forged_header_allocates_nothing(
    shape: tuple[int, int, int], says: str, packed: bool
) -> None:
    forged = struct.pack(">4I", IMAGES_MAGIC, *shape) + b"data"
    tracemalloc.start()
    try:
        with pytest.raises(DatasetFormatError, match=says):
            read_idx(gzip.compress(forged) if packed else forged, IMAGES_MAGIC)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


def test_a_gzip_bomb_is_read_only_as_far_as_its_header_promises(idx_labels: bytes) -> None:
    bomb = gzip.compress(idx_labels + bytes(64 * 2**20))
    tracemalloc.start()
    try:
        with pytest.raises(DatasetFormatError, match="bytes after the end"):
            read_idx(bomb, LABELS_MAGIC)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


def test_counts_that_differ_are_refused(idx_images: bytes) -> None:
    two = struct.pack(">2I", LABELS_MAGIC, 2) + b"\x01\x02"
    with pytest.raises(DatasetFormatError, match="2 labels for 3 images"):
        Mnist.parse(idx_images, two)


def test_a_label_above_nine_is_refused_at_its_place(idx_images: bytes) -> None:
    labels = struct.pack(">2I", LABELS_MAGIC, 3) + bytes([1, 10, 2])
    with pytest.raises(DatasetFormatError, match="byte 9: label 10 of image 1: expected 0 to 9"):
        Mnist.parse(idx_images, labels)


@given(st.binary(max_size=64))
def test_random_bytes_give_a_format_error_or_a_sound_array(data: bytes) -> None:
    for magic in (IMAGES_MAGIC, LABELS_MAGIC):
        for prefix in (b"", struct.pack(">I", magic), b"\x1f\x8b"):
            try:
                found = read_idx(prefix + data, magic)
            except DatasetFormatError:
                continue
            assert found.numel() == len(prefix + data) - 4 - 4 * (magic & 0xFF)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_what_is_written_is_read_back(count: int, rows: int, columns: int, packed: bool) -> None:
    import tempfile

    images = torch.randint(0, 256, (count, rows, columns), dtype=torch.uint8)
    labels = torch.randint(0, 10, (count,), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}{'.gz' if packed else ''}" for name in ("i", "l")]
        write_idx(paths[0], images)
        write_idx(paths[1], labels)
        data = Mnist.parse(*paths, normalize="none")
    assert torch.equal(data.images[:, 0], images)
    assert torch.equal(data.labels, labels.long())


@pytest.mark.parametrize(
    "data",
    [
        torch.zeros(2, 2, dtype=torch.uint8),
        torch.zeros(2),
        torch.zeros(0, dtype=torch.uint8),
    ],
)
def test_other_arrays_are_not_written(data: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected torch.uint8"):
        write_idx(tmp_path / "data", data)
    assert not list(tmp_path.iterdir())
