"""The GPUs of one process as nodes of its tree, with means and peaks of what they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.core.paths import device_path
from flodl.core.resources import ResourceSample, Spread, sample_body
from flodl.records.node import NodeReport

Spreads = Mapping[int, Mapping[str, Spread]]

_INTERVAL = ("tick", "epoch", "epoch_complete", "step", "restart")


def peak_body(sample: ResourceSample, spreads: Spreads) -> dict[str, Any]:
    """Return the ``res`` of a node for the devices of a sample: their means, and their peaks."""
    body = sample_body(sample)
    indices = [gpu.device_index for gpu in sample.gpus]
    utils = [s.high for i in indices if (s := spreads.get(i, {}).get("util_percent"))]
    allocated = [s.high for i in indices if (s := spreads.get(i, {}).get("vram_allocated_bytes"))]
    if utils:
        body["gpu_util_max"] = max(utils)
    if allocated:
        body["vram_alloc_max"] = round(sum(allocated))
    return body


def device_reports(sample: ResourceSample, spreads: Spreads, **fields: Any) -> list[NodeReport]:
    """Return what each of several devices reports; of a single one nothing.

    Args:
        sample: Means since the last reading.
        spreads: Extremes, by device and field.
        fields: Of the report of the process; those that say which interval it is are taken over.
    """
    if len(sample.gpus) < 2:
        return []
    interval = {name: fields[name] for name in _INTERVAL if name in fields}
    return [
        NodeReport(
            path=device_path(gpu.device_index),
            res=peak_body(ResourceSample(gpus=(gpu,)), spreads),
            label=gpu.name,
            device=gpu.device_index,
            **interval,
        )
        for gpu in sample.gpus
    ]
