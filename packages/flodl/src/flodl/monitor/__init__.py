"""Training made visible: epoch lines with an honest estimate, a live page, files and sinks."""

from flodl.monitor.eta import EtaEstimator as EtaEstimator
from flodl.monitor.history import EpochRecord as EpochRecord
from flodl.monitor.history import GpuMetrics as GpuMetrics
from flodl.monitor.monitor import Monitor as Monitor
from flodl.records.record import Sink as Sink
from flodl.records.rollup import Reduction as Reduction

__all__ = ["EpochRecord", "EtaEstimator", "GpuMetrics", "Monitor", "Reduction", "Sink"]
