"""The records of a run as a tree: what every viewer, file and sink reads. No torch, no HTTP."""

from flodl.records.node import NodeReport as NodeReport
from flodl.records.record import Record as Record
from flodl.records.record import Sink as Sink
from flodl.records.rollup import Reduction as Reduction
from flodl.records.tree import RecordTree as RecordTree

__all__ = ["NodeReport", "Record", "RecordTree", "Reduction", "Sink"]
