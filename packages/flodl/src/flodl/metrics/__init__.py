"""Numbers about training: per-step scalars and per-epoch summaries. No torch in here."""

from flodl.metrics.epoch import EpochMetrics as EpochMetrics
from flodl.metrics.scalars import ScalarScope as ScalarScope
from flodl.metrics.scalars import drain_scalars as drain_scalars
from flodl.metrics.scalars import record_scalar as record_scalar

__all__ = ["EpochMetrics", "ScalarScope", "drain_scalars", "record_scalar"]
