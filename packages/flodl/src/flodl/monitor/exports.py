"""The history of a run as CSV and as a text log."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from flodl.core.units import format_eta
from flodl.monitor.console import ConsoleLines
from flodl.monitor.history import EpochRecord

_RESOURCES = ("cpu_pct", "ram_used", "gpu_pct", "vram_alloc", "vram_spill")


def history_csv(history: Sequence[EpochRecord]) -> str:
    """Return one row per epoch. Columns are those of all epochs; what is absent is empty."""
    names = list(dict.fromkeys(name for record in history for name in record.metrics))
    devices = sorted({index for record in history for index in _devices(record)})
    shown = devices if len(devices) >= 2 else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("epoch", "duration_s"),
            *names,
            *_RESOURCES,
            *(f"gpu{d}_{n}" for d in shown for n in ("util", "vram_alloc", "throughput", "share")),
        ]
    )
    for record in history:
        writer.writerow(
            [
                record.epoch + 1,
                f"{record.duration_secs:.3f}",
                *(_number(record.metrics.get(name)) for name in names),
                *_resource_cells(record),
                *(cell for device in shown for cell in _device_cells(record, device)),
            ]
        )
    return text.getvalue()


def history_log(history: Sequence[EpochRecord], lines: ConsoleLines, total_secs: float) -> str:
    """Return the epoch lines without estimates, under a heading, with the total at the end."""
    texts = [
        lines.epoch_text(record.epoch, record.duration_secs, record.metrics, eta=None)
        for record in history
    ]
    return "\n".join(["# flodl training log", *texts, f"# total: {format_eta(total_secs)}", ""])


def _devices(record: EpochRecord) -> set[int]:
    return {gpu.device_index for gpu in record.resources.gpus} | {
        part.device_index for part in record.gpu_metrics
    }


def _resource_cells(record: EpochRecord) -> list[str]:
    resources = record.resources
    allocated = resources.vram_allocated_bytes
    is_known = allocated is not None and resources.vram_total_bytes is not None
    return [
        _percent(resources.cpu_percent),
        _number(resources.ram_used_bytes),
        _percent(resources.gpu_util_percent),
        _number(allocated),
        _number(resources.spill_bytes if is_known else None),
    ]


def _device_cells(record: EpochRecord, device: int) -> list[str]:
    gpu = next((g for g in record.resources.gpus if g.device_index == device), None)
    part = next((p for p in record.gpu_metrics if p.device_index == device), None)
    return [
        _percent(None if gpu is None else gpu.util_percent),
        _number(None if gpu is None else gpu.vram_allocated_bytes),
        _number(None if part is None else part.throughput),
        _number(None if part is None else part.chunk_ratio),
    ]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "0" if value == 0 else repr(value)
