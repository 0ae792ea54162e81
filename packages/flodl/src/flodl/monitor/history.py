"""One logged epoch: what it measured, as its caller and the epoch feed see it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flodl.core.resources import ResourceSample
from flodl.metrics.epoch import EpochMetrics


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuMetrics:
    """How one device took part in an epoch."""

    device_index: int
    """Physical index."""
    throughput: float
    """Samples per millisecond."""
    chunk_ratio: float
    """Share of the epoch, from 0 to 1."""
    shard_size: int
    """Samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochRecord:
    """One logged epoch."""

    epoch: int
    """0-based."""
    duration_secs: float
    metrics: dict[str, float]
    resources: ResourceSample = field(default_factory=ResourceSample)
    """Means since the epoch before."""
    gpu_metrics: tuple[GpuMetrics, ...] = ()
    ts: float = 0.0
    """Unix seconds."""
    eta_secs: float | None
    """Estimated seconds left, or ``None`` after the last epoch."""


def gpu_metrics_of(metrics: EpochMetrics) -> tuple[GpuMetrics, ...]:
    """Return how each rank of an epoch took part, for runs of several."""
    if metrics.world_size < 2:
        return ()
    total = sum(metrics.per_rank_samples) or 1
    indices = metrics.device_indices or range(len(metrics.per_rank_samples))
    return tuple(
        GpuMetrics(
            device_index=index,
            throughput=throughput,
            chunk_ratio=samples / total,
            shard_size=samples,
        )
        for index, throughput, samples in zip(
            indices, metrics.per_rank_throughput, metrics.per_rank_samples, strict=False
        )
    )


def feed_body(record: EpochRecord, total: int) -> dict[str, Any]:
    """Return the object of the epoch feed; what was not measured is left out."""
    resources = record.resources
    shown = {
        "cpu": resources.cpu_percent,
        "ram_used": resources.ram_used_bytes,
        "ram_total": resources.ram_total_bytes,
        "gpu": resources.gpu_util_percent,
        "vram_alloc": resources.vram_allocated_bytes,
        "vram_total": resources.vram_total_bytes,
    }
    body: dict[str, Any] = {
        "epoch": record.epoch + 1,
        "total": total,
        "duration": record.duration_secs,
        "metrics": {k: v if math.isfinite(v) else None for k, v in record.metrics.items()},
        "resources": _known(shown),
        "gpus": _gpu_bodies(record),
    }
    if record.eta_secs is not None:
        body["eta"] = record.eta_secs
    return body


def _gpu_bodies(record: EpochRecord) -> list[dict[str, Any]]:
    bodies: dict[int, dict[str, Any]] = {}
    for gpu in record.resources.gpus:
        bodies[gpu.device_index] = _known(
            {
                "dev": gpu.device_index,
                "name": gpu.name,
                "util": gpu.util_percent,
                "vram_alloc": gpu.vram_allocated_bytes,
                "vram_total": gpu.vram_total_bytes,
            }
        )
    for part in record.gpu_metrics:
        body = bodies.setdefault(part.device_index, {"dev": part.device_index})
        body.update(throughput=part.throughput, chunk=part.chunk_ratio, shard=part.shard_size)
    return [bodies[index] for index in sorted(bodies)]


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
