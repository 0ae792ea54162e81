"""Models as data flow: the builder, the graph it builds, and what they are made of."""

from flodl.core.errors import FlowError as FlowError
from flodl.core.errors import FlowWarning as FlowWarning
from flodl.core.errors import GraphInputError as GraphInputError
from flodl.core.errors import GraphPathError as GraphPathError
from flodl.core.errors import NodeError as NodeError
from flodl.core.errors import StateShapeError as StateShapeError
from flodl.graph.flow import FlowBuilder as FlowBuilder
from flodl.graph.graph import Graph as Graph
from flodl.graph.introspection import NodeInfo as NodeInfo
from flodl.graph.ir import Edge as Edge
from flodl.graph.nodes.merge import MergeOp as MergeOp

__all__ = [
    "Edge",
    "FlowBuilder",
    "FlowError",
    "FlowWarning",
    "Graph",
    "GraphInputError",
    "GraphPathError",
    "MergeOp",
    "NodeError",
    "NodeInfo",
    "StateShapeError",
]
