"""MNIST: handwritten digits in IDX files (LeCun, Cortes, Burges)."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from flodl.core.errors import ConfigError, DatasetFormatError
from flodl.data.dataset import InMemoryDataSet
from flodl.data.datasets.files import (
    SIZE_LIMIT,
    ByteReader,
    Source,
    StrPath,
    source_name,
    write_whole,
)
from flodl.data.datasets.images import Normalize, normalized

IMAGES_MAGIC = 2051
LABELS_MAGIC = 2049
_KINDS = {IMAGES_MAGIC: "images", LABELS_MAGIC: "labels"}
_MEAN, _STD = (0.1307,), (0.3081,)


@final
@dataclass(frozen=True, eq=False)
class Mnist(InMemoryDataSet):
    """Digits ``images`` ``[N, 1, rows, cols]`` and their ``labels`` ``[N]`` (int64)."""

    images: Tensor
    labels: Tensor

    class_names = tuple("0123456789")

    @property
    def names(self) -> tuple[str, ...]:
        """``image`` and ``label``."""
        return ("image", "label")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The images and the labels."""
        return (self.images, self.labels)

    @classmethod
    def parse(cls, images: Source, labels: Source, *, normalize: Normalize = "unit") -> Mnist:
        """Return the data set in two IDX files, given as bytes or paths, gzipped or not.

        Args:
            images: The images file.
            labels: The labels file.
            normalize: ``"unit"`` for float32 in [0, 1], ``"none"`` for uint8, ``"standard"`` for
                zero mean and unit deviation by the published figures.

        Raises:
            DatasetFormatError: Anything but two sound files that belong together.
            DatasetUnavailableError: A path that cannot be read.
        """
        pixels = read_idx(images, IMAGES_MAGIC)
        marks = read_idx(labels, LABELS_MAGIC)
        name = source_name(labels)
        if marks.numel() != pixels.shape[0]:
            raise DatasetFormatError(
                name, 4, f"{marks.numel()} labels for {pixels.shape[0]} images: expected as many"
            )
        wrong = (marks > 9).nonzero()
        if wrong.numel():
            place = int(wrong[0])
            raise DatasetFormatError(
                name, 8 + place, f"label {int(marks[place])} of image {place}: expected 0 to 9"
            )
        return cls(normalized(pixels.unsqueeze(1), normalize, _MEAN, _STD), marks.to(torch.int64))


def read_idx(source: Source, magic: int) -> Tensor:
    """Return the uint8 array in an IDX file with this magic number.

    The header is big-endian: the magic number, whose last byte is the number of dimensions, then
    the dimensions; after it one byte an element and nothing else.

    Raises:
        DatasetFormatError: Any other content.
        DatasetUnavailableError: A path that cannot be read.
    """
    dimensions = magic & 0xFF
    with ByteReader(source) as reader:
        header = reader.take(4 + 4 * dimensions)
        _check_magic(reader, header, magic)
        if len(header) < 4 + 4 * dimensions:
            raise reader.error(f"the header ends after {len(header)} of {4 + 4 * dimensions} bytes")
        shape: tuple[int, ...] = struct.unpack(f">{dimensions}I", header[4:])
        count = math.prod(shape)
        if not count:
            raise reader.error(f"the dimensions are {list(shape)}: expected none of them 0", 4)
        if count > SIZE_LIMIT:
            raise reader.error(f"the dimensions {list(shape)} promise more than 1 GiB", 4)
        body = reader.take(count)
        if len(body) < count:
            raise reader.error(
                f"the data end after {len(body)} of the {count} bytes that the header promises"
            )
        if reader.take(1):
            raise reader.error("bytes after the end of the data", len(header) + count)
    return torch.frombuffer(body, dtype=torch.uint8).view(shape)


def _check_magic(reader: ByteReader, header: bytearray, magic: int) -> None:
    if len(header) < 4:
        raise reader.error(f"the file ends after {len(header)} bytes: no magic number")
    (found,) = struct.unpack(">I", header[:4])
    if found != magic:
        other = _KINDS.get(found)
        looks = "" if other is None else f" (these look like {other})"
        raise reader.error(f"magic number {found}: expected {magic} for {_KINDS[magic]}{looks}", 0)


def write_idx(path: StrPath, data: Tensor) -> None:
    """Write images ``[N, rows, cols]`` or labels ``[N]`` as an IDX file, gzipped for ``.gz``.

    Raises:
        ConfigError: Another shape or dtype than uint8; nothing is written then.
    """
    magic = {3: IMAGES_MAGIC, 1: LABELS_MAGIC}.get(data.dim())
    if magic is None or data.dtype != torch.uint8 or not data.numel():
        raise ConfigError(
            f"IDX data of {data.dtype} {list(data.shape)}: expected torch.uint8 [N, rows, cols] or "
            "[N], not empty"
        )
    header = struct.pack(f">{1 + data.dim()}I", magic, *data.shape)
    write_whole(path, header + data.contiguous().numpy().tobytes())
