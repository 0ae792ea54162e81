"""The history of a run as a data frame."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from flodl.monitor.errors import MissingExtraError
from flodl.monitor.history import EpochRecord


def history_frame(history: Sequence[EpochRecord]) -> Any:
    """Return one row per epoch, indexed by its 1-based number; what is absent is NaN.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("history_frame()", extra="pandas") from error
    rows = [
        {
            "duration_s": record.duration_secs,
            **record.metrics,
            "cpu_pct": record.resources.cpu_percent,
            "gpu_pct": record.resources.gpu_util_percent,
            "vram_alloc": record.resources.vram_allocated_bytes,
        }
        for record in history
    ]
    index = pandas.Index([record.epoch + 1 for record in history], name="epoch")
    return pandas.DataFrame(rows, index=index)
