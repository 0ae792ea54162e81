"""Models as data flow: the builder, the graph it builds, and what they are made of."""

from flodl.core.errors import CaptureError as CaptureError
from flodl.core.errors import ExportError as ExportError
from flodl.core.errors import FlowError as FlowError
from flodl.core.errors import FlowWarning as FlowWarning
from flodl.core.errors import GraphInputError as GraphInputError
from flodl.core.errors import GraphPathError as GraphPathError
from flodl.core.errors import NoDataError as NoDataError
from flodl.core.errors import NodeError as NodeError
from flodl.core.errors import StateShapeError as StateShapeError
from flodl.core.errors import SwitchIndexError as SwitchIndexError
from flodl.core.errors import TopologyError as TopologyError
from flodl.core.errors import TraceError as TraceError
from flodl.graph.capture import CaptureReport as CaptureReport
from flodl.graph.flow import FlowBuilder as FlowBuilder
from flodl.graph.graph import Graph as Graph
from flodl.graph.introspection import NodeInfo as NodeInfo
from flodl.graph.ir import Edge as Edge
from flodl.graph.nodes.merge import MergeOp as MergeOp
from flodl.graph.nodes.traces import LoopBody as LoopBody
from flodl.graph.nodes.traces import TraceEmit as TraceEmit
from flodl.graph.paths import PathKind as PathKind
from flodl.graph.profiling import Profile as Profile
from flodl.graph.stepping import LossContext as LossContext
from flodl.graph.stepping import NamespaceError as NamespaceError
from flodl.graph.stepping import Stepper as Stepper
from flodl.graph.topology import register_module as register_module
from flodl.metrics.trend import Trend as Trend
from flodl.metrics.trend import TrendGroup as TrendGroup
from flodl.nn import ArgmaxSelector as ArgmaxSelector
from flodl.nn import Detach as Detach
from flodl.nn import FixedSelector as FixedSelector
from flodl.nn import Identity as Identity
from flodl.nn import Lambda as Lambda
from flodl.nn import LearnedHalt as LearnedHalt
from flodl.nn import Reshape as Reshape
from flodl.nn import SigmoidRouter as SigmoidRouter
from flodl.nn import SoftmaxRouter as SoftmaxRouter
from flodl.nn import StateAdd as StateAdd
from flodl.nn import ThresholdHalt as ThresholdHalt

__all__ = [
    "ArgmaxSelector",
    "CaptureError",
    "CaptureReport",
    "Detach",
    "Edge",
    "ExportError",
    "FixedSelector",
    "FlowBuilder",
    "FlowError",
    "FlowWarning",
    "Graph",
    "GraphInputError",
    "GraphPathError",
    "Identity",
    "Lambda",
    "LearnedHalt",
    "LoopBody",
    "LossContext",
    "MergeOp",
    "NamespaceError",
    "NoDataError",
    "NodeError",
    "NodeInfo",
    "PathKind",
    "Profile",
    "Reshape",
    "SigmoidRouter",
    "SoftmaxRouter",
    "StateAdd",
    "StateShapeError",
    "Stepper",
    "SwitchIndexError",
    "ThresholdHalt",
    "TopologyError",
    "TraceEmit",
    "TraceError",
    "Trend",
    "TrendGroup",
    "register_module",
]
