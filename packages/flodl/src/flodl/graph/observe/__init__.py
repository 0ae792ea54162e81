"""Parts of Graph for reading it after a call: tags, traces, metrics and times."""

from flodl.graph.observe.metrics import Metrics as Metrics
from flodl.graph.observe.tags import Tags as Tags
from flodl.graph.observe.timing import Timing as Timing
from flodl.graph.observe.traces import Traces as Traces

__all__ = ["Metrics", "Tags", "Timing", "Traces"]
