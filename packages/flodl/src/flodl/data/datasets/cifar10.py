"""CIFAR-10: small photographs in ten classes, binary version (Krizhevsky 2009)."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Literal, TypeAlias, cast, final

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

Split: TypeAlias = Literal["train", "test"]

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
RECORD_BYTES = 3073
RECORDS_PER_FILE = 10_000
MEMBERS: dict[Split, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
_FOLDER = "cifar-10-batches-bin"
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@final
@dataclass(frozen=True, eq=False)
class Cifar10(InMemoryDataSet):
    """Color ``images`` ``[N, 3, 32, 32]`` and their ``labels`` ``[N]`` (int64)."""

    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...] = CLASSES

    @property
    def names(self) -> tuple[str, ...]:
        """``image`` and ``label``."""
        return ("image", "label")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The images and the labels."""
        return (self.images, self.labels)

    @classmethod
    def parse(
        cls,
        batches: Sequence[Source],
        *,
        normalize: Normalize = "unit",
        records_per_file: int | None = RECORDS_PER_FILE,
        class_names: Sequence[str] = CLASSES,
    ) -> Cifar10:
        """Return the data set in binary batch files, given as bytes or paths, gzipped or not.

        Args:
            batches: The files, in order.
            normalize: ``"unit"`` for float32 in [0, 1], ``"none"`` for uint8, ``"standard"`` for
                zero mean and unit deviation by the published figures.
            records_per_file: Records that each file must have; ``None`` takes one or more.
            class_names: What the labels 0 to 9 stand for.

        Raises:
            ConfigError: No batches, or one file instead of a sequence of them.
            DatasetFormatError: Another size, or a label above 9.
            DatasetUnavailableError: A path that cannot be read.
        """
        if isinstance(batches, bytes | bytearray | memoryview | str) or not batches:
            raise ConfigError(f"batches={batches!r:.60}: expected a sequence of one or more files")
        if len(class_names) != 10:
            raise ConfigError(f"class_names={list(class_names)!r}: expected 10 of them")
        parts = [
            _records(source, number, records_per_file) for number, source in enumerate(batches)
        ]
        records = torch.cat(parts) if len(parts) > 1 else parts[0]
        images = normalized(records[:, 1:].reshape(-1, 3, 32, 32), normalize, _MEAN, _STD)
        return cls(images, records[:, 0].to(torch.int64), tuple(class_names))

    @classmethod
    def from_archive(
        cls, source: Source, split: Split = "train", *, normalize: Normalize = "unit"
    ) -> Cifar10:
        """Return one split of ``cifar-10-binary.tar.gz``, given as bytes or a path.

        The archive is read as a stream and nothing is unpacked to disk.

        Raises:
            DatasetFormatError: No sound archive, or a member that is missing, given twice, not a
                regular file, or not exactly 10,000 records.
            DatasetUnavailableError: A path that cannot be read.
        """
        if split not in MEMBERS:
            raise ConfigError(f'split={split!r}: expected "train" or "test"')
        found = _archive_members(source, MEMBERS[split])
        return cls.parse([found[name] for name in MEMBERS[split]], normalize=normalize)


def _records(source: Source, number: int, per_file: int | None) -> Tensor:
    """Return the records of batch file ``number`` as uint8 ``[N, 3073]``."""
    limit = SIZE_LIMIT if per_file is None else per_file * RECORD_BYTES
    with ByteReader(source) as reader:
        body = reader.take(limit)
        if reader.take(1):
            raise reader.error(f"batch {number} has more than {limit} bytes", limit)
        if not body or len(body) % RECORD_BYTES or (per_file is not None and len(body) < limit):
            expected = f"{limit}" if per_file is not None else f"a multiple of {RECORD_BYTES}"
            raise reader.error(f"batch {number} has {len(body)} bytes: expected {expected}")
    records = torch.frombuffer(body, dtype=torch.uint8).view(-1, RECORD_BYTES)
    wrong = (records[:, 0] > 9).nonzero()
    if wrong.numel():
        place = int(wrong[0])
        raise DatasetFormatError(
            source_name(source),
            place * RECORD_BYTES,
            f"label {int(records[place, 0])} of batch {number}, record {place}: expected 0 to 9",
        )
    return records


def _archive_members(source: Source, names: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with ByteReader(source) as reader:
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", reader), mode="r|") as archive:
                for member in archive:
                    name = member.name.removeprefix(f"{_FOLDER}/")
                    if name in names:
                        if name in found:
                            raise reader.error(f"the archive has {member.name} twice")
                        found[name] = _member_bytes(reader, archive, member)
        except tarfile.TarError as error:
            raise reader.error(f"bad archive: {error}") from error
        missing = [name for name in names if name not in found]
        if missing:
            raise reader.error(f"the archive lacks {', '.join(missing)}")
    return found


def _member_bytes(reader: ByteReader, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    expected = RECORDS_PER_FILE * RECORD_BYTES
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise reader.error(f"{member.name} is not a regular file")
    if member.size != expected:
        raise reader.error(f"{member.name} has {member.size} bytes: expected {expected}")
    return content.read(expected)


def write_cifar10(path: StrPath, images: Tensor, labels: Tensor) -> None:
    """Write uint8 images ``[N, 3, 32, 32]`` with labels ``[N]`` as records, gzipped for ``.gz``.

    Raises:
        ConfigError: Another shape or dtype, or a label outside 0 to 9; nothing is written then.
    """
    fits = images.dtype == torch.uint8 and images.shape == (labels.numel(), 3, 32, 32)
    if not fits or not labels.numel() or labels.dim() != 1:
        raise ConfigError(
            f"CIFAR-10 images of {images.dtype} {list(images.shape)} with labels "
            f"{list(labels.shape)}: expected torch.uint8 [N, 3, 32, 32] with [N], N above 0"
        )
    if bool(((labels < 0) | (labels > 9)).any()):
        raise ConfigError(f"CIFAR-10 labels up to {int(labels.max())}: expected 0 to 9")
    records = torch.cat([labels.to(torch.uint8).unsqueeze(1), images.flatten(1)], dim=1)
    write_whole(path, records.contiguous().numpy().tobytes())
