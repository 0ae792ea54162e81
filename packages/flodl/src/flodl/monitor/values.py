"""Metric values as plain numbers, whatever they were given as."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, SupportsFloat, runtime_checkable

from flodl.metrics.epoch import EpochMetrics
from flodl.monitor.errors import MetricTypeError


@runtime_checkable
class MetricSource(Protocol):
    """Something that knows its own latest metrics, such as a graph."""

    def latest_metrics(self) -> Mapping[str, Any]:
        """Return the last flushed value of each metric, in first-recorded order."""


MetricPairs = Iterable[tuple[str, SupportsFloat]]
MetricValues = Mapping[str, Any] | MetricPairs | MetricSource
MetricsLike = MetricValues | EpochMetrics | tuple[MetricSource, Mapping[str, Any]]


def metric_values(metrics: MetricsLike) -> dict[str, float]:
    """Return metrics as numbers by name; tensors on devices are read in one copy.

    Raises:
        MetricTypeError: A value is no single real number; nothing was read halfway.
    """
    named = _named(metrics)
    tensors = {name: value for name, value in named.items() if hasattr(value, "detach")}
    for name, value in named.items():
        if name in tensors:
            if value.numel() != 1 or value.is_complex():
                raise MetricTypeError(
                    f"metric {name!r}: a tensor of shape {tuple(value.shape)} and {value.dtype} "
                    "is no single real number",
                    hint="reduce it first, for example with .mean()",
                )
        else:
            named[name] = _number(name, value)
    named.update(_read_tensors(tensors))
    return named


def _named(metrics: MetricsLike) -> dict[str, Any]:
    if isinstance(metrics, EpochMetrics):
        values: dict[str, Any] = {"loss": metrics.avg_loss, **(metrics.eval or {})}
        return values | {name: metrics.scalars[name] for name in sorted(metrics.scalars)}
    if isinstance(metrics, MetricSource):
        return dict(metrics.latest_metrics())
    if isinstance(metrics, Mapping):
        return dict(metrics)
    if isinstance(metrics, tuple) and len(metrics) == 2 and isinstance(metrics[0], MetricSource):
        source, extras = metrics
        return {**source.latest_metrics(), **dict(extras)}
    return dict(_pairs(metrics))


def _pairs(metrics: Any) -> Sequence[tuple[str, Any]]:
    try:
        return [(str(name), value) for name, value in metrics]
    except (TypeError, ValueError) as error:
        raise MetricTypeError(
            f"metrics of type {type(metrics).__name__} are neither a mapping, pairs of name and "
            "value, a graph, a graph with extras, nor EpochMetrics"
        ) from error


def _number(name: str, value: Any) -> float:
    is_scalar = not isinstance(value, (str, bytes, bytearray)) and getattr(value, "ndim", 0) == 0
    if is_scalar and not isinstance(value, complex):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass  # told below, with the type
    shape = getattr(value, "shape", None)
    described = f"{type(value).__name__} "
    described += repr(value)[:80] if shape is None else f"of shape {tuple(shape)}"
    raise MetricTypeError(f"metric {name!r}: {described} is no single real number")


def _read_tensors(tensors: Mapping[str, Any]) -> dict[str, float]:
    """Read 0-d tensors: one copy per device, not one per value."""
    if not tensors:
        return {}
    torch = sys.modules["torch"]
    by_device: dict[Any, list[str]] = {}
    for name, value in tensors.items():
        by_device.setdefault(value.device, []).append(name)
    read: dict[str, float] = {}
    for device, names in by_device.items():
        # MPS has no float64
        kind = torch.float32 if device.type == "mps" else torch.float64
        flat = [tensors[name].detach().reshape(()).to(kind) for name in names]
        read.update(zip(names, torch.stack(flat).tolist(), strict=True))
    return read
