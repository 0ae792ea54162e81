"""The data that loaders are measured on: images and tokens, in memory, in files and in archives."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flodl.data import MemmapDataSet, TarStream, TensorDataSet, TokenWindows

BATCH_SIZE = 256
IMAGES = (50_000, (3, 32, 32))
LARGE_IMAGES = (10_000, (3, 224, 224))
TOKENS, WINDOW = 16_000_000, 256
SHARDS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One set in one kind of source, and how each side reads it.

    ``batched`` gives torch whole batches by index lists, where a source can; ``items`` one sample
    at a time; ``stream`` opens it from the front.
    """

    name: str
    samples: int
    batch_size: int
    ours: Any
    batched: Any | None = None
    items: Any | None = None
    stream: Callable[[], TarStream] | None = None


class BatchReads:
    """A data set that torch's loader asks for a list of indices at once."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, indices: list[int]) -> list[Tensor]:
        found = self._data.get_batch(torch.as_tensor(indices))
        return list(found.values()) if isinstance(found, dict) else list(found)


class AugmentedItems:
    """Images read one by one in Python, each flipped and cut out by rules of its index."""

    names = ("image", "label")

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self._images = images.numpy()
        self._labels = labels

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self._images[index]
        if index % 2:
            image = image[:, :, ::-1]
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
        top, left = index % 9, index // 9 % 9
        cut = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        return torch.from_numpy(np.ascontiguousarray(cut)), self._labels[index]


def make_cases(folder: Path, scale: float) -> list[Case]:
    """Return the cases, their files written below ``folder``; ``scale`` is the share of samples."""
    generator = torch.Generator().manual_seed(0)
    count = _scaled(IMAGES[0], scale)
    images = _pixels((count, *IMAGES[1]), generator)
    labels = torch.arange(count) % 10
    in_memory = TensorDataSet(image=images, label=labels)
    augmented = AugmentedItems(images, labels)
    large = _large_images(folder, _scaled(LARGE_IMAGES[0], scale), generator)
    windows = _tokens(folder, _scaled(TOKENS, scale), generator)
    return [
        Case(
            name="images in memory",
            samples=count,
            batch_size=BATCH_SIZE,
            ours=in_memory,
            batched=BatchReads(in_memory),
            items=torch.utils.data.TensorDataset(images, labels),
        ),
        Case(
            name="augmented items",
            samples=count,
            batch_size=BATCH_SIZE,
            ours=augmented,
            items=augmented,
        ),
        Case(
            name="large images in a file",
            samples=len(large),
            batch_size=64,
            ours=large,
            batched=BatchReads(large),
            items=large,
        ),
        Case(
            name="token windows in a file",
            samples=len(windows),
            batch_size=64,
            ours=windows,
            batched=BatchReads(windows),
            items=windows,
        ),
        _archives(folder, images[: max(2 * SHARDS * BATCH_SIZE, count // 5)], labels),
    ]


def _scaled(count: int, scale: float) -> int:
    return max(4 * BATCH_SIZE, int(count * scale))


def _pixels(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def _large_images(folder: Path, count: int, generator: torch.Generator) -> MemmapDataSet:
    path = folder / "large.npy"
    file = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.uint8, shape=(count, *LARGE_IMAGES[1])
    )
    for start in range(0, count, BATCH_SIZE):
        rows = min(BATCH_SIZE, count - start)
        file[start : start + rows] = _pixels((rows, *LARGE_IMAGES[1]), generator).numpy()
    file.flush()
    np.save(folder / "labels.npy", np.arange(count) % 10)
    return MemmapDataSet({"image": path, "label": folder / "labels.npy"})


def _tokens(folder: Path, count: int, generator: torch.Generator) -> TokenWindows:
    path = folder / "tokens.bin"
    tokens = torch.randint(0, 50_000, (count,), generator=generator)
    tokens.numpy().astype(np.uint16).tofile(path)
    return TokenWindows(path, WINDOW, "uint16")


def _decoded(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(IMAGES[1])


def _archives(folder: Path, images: Tensor, labels: Tensor) -> Case:
    count = len(images) // SHARDS * SHARDS
    for shard in range(SHARDS):
        with tarfile.open(folder / f"shard-{shard}.tar", "w") as archive:
            for number in range(shard * count // SHARDS, (shard + 1) * count // SHARDS):
                for key, content in (
                    ("image", images[number].numpy().tobytes()),
                    ("label", str(int(labels[number])).encode()),
                ):
                    info = tarfile.TarInfo(f"{number:06d}.{key}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
    pattern = str(folder / f"shard-{{0..{SHARDS - 1}}}.tar")

    def stream() -> TarStream:
        return TarStream([pattern], {"image": _decoded, "label": int}, shuffle=False)

    return Case(
        name="tar archives", samples=count, batch_size=BATCH_SIZE, ours=stream(), stream=stream
    )
