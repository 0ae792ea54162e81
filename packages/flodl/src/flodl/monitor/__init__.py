"""Training made visible: epoch lines with an honest estimate, a live page, files and sinks."""

from flodl.monitor.history import EpochRecord as EpochRecord
from flodl.monitor.history import GpuMetrics as GpuMetrics
from flodl.monitor.monitor import Monitor as Monitor
from flodl.monitor.timeline import Timeline as Timeline
from flodl.records.eta import EtaEstimator as EtaEstimator
from flodl.records.events import EventKind as EventKind
from flodl.records.record import Sink as Sink
from flodl.records.rollup import Reduction as Reduction

__all__ = [
    "EpochRecord",
    "EtaEstimator",
    "EventKind",
    "GpuMetrics",
    "Monitor",
    "Reduction",
    "Sink",
    "Timeline",
]
