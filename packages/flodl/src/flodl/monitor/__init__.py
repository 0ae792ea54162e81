"""Training made visible: epoch lines on the console, with an honest estimate of what is left."""

from flodl.monitor.eta import EtaEstimator as EtaEstimator
from flodl.monitor.monitor import EpochRecord as EpochRecord
from flodl.monitor.monitor import Monitor as Monitor

__all__ = ["EpochRecord", "EtaEstimator", "Monitor"]
