"""Graphs as plain JSON values, and back: the plan, and how its modules were constructed."""

from flodl.graph.topology.modules import Registry as Registry
from flodl.graph.topology.modules import register_module as register_module
from flodl.graph.topology.read import graph_from as graph_from
from flodl.graph.topology.write import topology_of as topology_of

__all__ = ["Registry", "graph_from", "register_module", "topology_of"]
