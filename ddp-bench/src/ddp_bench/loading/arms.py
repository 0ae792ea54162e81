"""The loaders that are measured: flodl's, and torch's with each number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, get_worker_info

from ddp_bench.loading.sets import Case
from flodl.data import DataLoader

TORCH_WORKERS = (0, 2, 4, 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """A loader ready to be measured: ``epoch(n)`` yields lists of tensors on the device."""

    name: str
    side: str
    epoch: Callable[[int], Iterator[list[Tensor]]]
    close: Callable[[], None]
    held_ram_bytes: int = 0
    """What it took of the host when it was built."""
    held_vram_bytes: int = 0
    """What it keeps on the GPU."""


def make_arms(case: Case, device: torch.device, workers: tuple[int, ...]) -> list[Arm]:
    """Return all arms of one case; ``workers`` are the counts that torch's loader is given."""
    ours = _our_streams(case, device, workers) if case.stream else _our_arms(case, device, workers)
    return [*ours, *_torch_arms(case, device, workers)]


def _our_arms(case: Case, device: torch.device, workers: tuple[int, ...]) -> list[Arm]:
    options: dict[str, Any] = {"batch_size": case.batch_size, "device": device, "seed": 1}
    arms = []
    if case.items is not case.ours or hasattr(case.ours, "get_batch"):
        arms.append(_resident(case, options))
    streamed = {**options, "streaming": True}
    arms.append(_ours("streaming", DataLoader(case.ours, **streamed)))
    arms.append(_ours("streaming, no thread", DataLoader(case.ours, prefetch=0, **streamed)))
    for count in workers:
        if count < 2:
            continue
        more = {**streamed, "workers": count, "prefetch": 2 * count}
        arms.append(_ours(f"streaming, {count} threads", DataLoader(case.ours, **more)))
        if case.batched is None:
            made = DataLoader(case.ours, worker_mode="process", **more)
            arms.append(_ours(f"streaming, {count} processes", made))
    return arms


def _our_streams(case: Case, device: torch.device, workers: tuple[int, ...]) -> list[Arm]:
    assert case.stream is not None
    ways = {"streaming": {"prefetch": 4}, "streaming, no thread": {"prefetch": 0}}
    for count in workers:
        if count:
            ways[f"streaming, {count} processes"] = {"prefetch": 4, "workers": count}
    return [
        _ours(
            name,
            DataLoader.from_iterable(case.stream(), case.batch_size, device=device, **options),
        )
        for name, options in ways.items()
    ]


def _resident(case: Case, options: dict[str, Any]) -> Arm:
    process = psutil.Process()
    before = process.memory_info().rss
    loader = DataLoader(case.ours, resident=True, **options)
    grown = process.memory_info().rss - before
    held = 0 if loader.store is None else sum(part.nbytes for part in loader.store.tensors)
    return replace(_ours("resident", loader), held_ram_bytes=max(0, grown), held_vram_bytes=held)


def _ours(name: str, loader: Any) -> Arm:
    def epoch(number: int) -> Iterator[list[Tensor]]:
        return (batch.into_list() for batch in loader.epoch(number))

    return Arm(name=name, side="flodl", epoch=epoch, close=loader.close)


class _Order:
    """The order that flodl's loader has, as a sampler of torch: of samples, or of whole batches."""

    def __init__(self, case: Case, *, batched: bool) -> None:
        self._batch_size = case.batch_size if batched else None
        self._loader = DataLoader(_Numbers(case.samples), batch_size=case.batch_size, seed=1)
        self._numbers: list[Any] = []
        self._length = case.samples // case.batch_size if batched else case.samples

    def set_epoch(self, epoch: int) -> None:
        batches = [batch[0].tolist() for batch in self._loader.epoch(epoch)]
        flat = [index for batch in batches for index in batch]
        self._numbers = batches if self._batch_size else flat

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._numbers)


class _Numbers:
    is_fixed = True

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def get_batch(self, indices: Tensor) -> list[Tensor]:
        return [indices]


def _torch_arms(case: Case, device: torch.device, workers: tuple[int, ...]) -> list[Arm]:
    arms = []
    for count in workers:
        options: dict[str, Any] = {
            "num_workers": count,
            "persistent_workers": count > 0,
            "pin_memory": device.type == "cuda",
        }
        if case.stream is not None:
            data: Any = _Shared(case.stream)
            made = TorchLoader(data, batch_size=case.batch_size, drop_last=True, **options)
            arms.append(_theirs(f"{count} workers", made, None, device))
            continue
        if case.items is not None:
            order = _Order(case, batched=False)
            made = TorchLoader(
                case.items,
                batch_size=case.batch_size,
                sampler=order,
                drop_last=True,
                **options,
            )
            arms.append(_theirs(f"items, {count} workers", made, order, device))
        if case.batched is not None:
            order = _Order(case, batched=True)
            made = TorchLoader(
                case.batched,
                batch_size=None,
                sampler=order,
                **options,
            )
            arms.append(_theirs(f"batched, {count} workers", made, order, device))
    return arms


class _Shared(IterableDataset[Any]):
    """A stream whose archives torch's workers share."""

    def __init__(self, stream: Callable[[], Any]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Any]:
        stream, worker = self._stream(), get_worker_info()
        if worker is not None:
            stream.shard_for_rank(worker.id, worker.num_workers)
        return iter(stream)


def _theirs(name: str, loader: Any, order: _Order | None, device: torch.device) -> Arm:
    def epoch(number: int) -> Iterator[list[Tensor]]:
        if order is not None:
            order.set_epoch(number)
        for batch in loader:
            parts = batch.values() if isinstance(batch, dict) else batch
            yield [part.to(device, non_blocking=True) for part in parts]

    def close() -> None:
        iterator = getattr(loader, "_iterator", None)
        if iterator is not None:
            iterator._shutdown_workers()  # noqa: SLF001 - torch ends persistent workers no other way

    return Arm(name=name, side="torch", epoch=epoch, close=close)
