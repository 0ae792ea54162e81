"""A timeline from its JSON form, as another process has kept it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.core.resources import GpuSnapshot, ResourceSample
from flodl.records.timeline import TimelineData, TimelineEvent


def timeline_of(body: Mapping[str, Any], *, shift_ms: int = 0) -> TimelineData:
    """Return the timeline that a body of ``timeline_body`` describes.

    Args:
        body: The JSON form, of our own making.
        shift_ms: Added to every time, where the two clocks began apart.
    """
    data = TimelineData(str(body["host"]))
    for row in body["samples"]:
        used, total = row["ram"]
        data.add_sample(row["t"] + shift_ms, _sample(row["cpu"], used, total, row["gpus"]))
    for row in body["rank_samples"]:
        sample = _sample(
            row.get("cpu"), row.get("ram_used"), row.get("ram_total"), row.get("gpus", ())
        )
        data.add_rank_sample(row["t"] + shift_ms, row["rank"], row["host"], sample)
    for event in body["events"]:
        fields = {name: value for name, value in event.items() if name not in {"t", "k"}}
        if event["k"] != "idle":  # derived from the samples
            data.add_event(TimelineEvent(event["t"] + shift_ms, event["k"], fields))
    return data


def _sample(
    cpu: float | None, ram_used: int | None, ram_total: int | None, gpus: Any
) -> ResourceSample:
    return ResourceSample(
        cpu_percent=cpu,
        ram_used_bytes=ram_used,
        ram_total_bytes=ram_total,
        gpus=tuple(
            GpuSnapshot(
                device_index=gpu["d"],
                name="",
                util_percent=gpu.get("u"),
                vram_allocated_bytes=gpu.get("va"),
                vram_used_bytes=gpu.get("vu"),
                vram_total_bytes=gpu.get("vt"),
            )
            for gpu in gpus
        ),
    )
