"""The constructs a flow is made of, by the ``op`` of their nodes."""

from flodl.graph.nodes.base import Construct
from flodl.graph.nodes.chain import Add, ModuleCall
from flodl.graph.nodes.inputs import Input
from flodl.graph.nodes.merge import Merge
from flodl.graph.nodes.state import StateRead

CONSTRUCTS: dict[str, Construct] = {
    construct.op: construct for construct in (Add(), Input(), Merge(), ModuleCall(), StateRead())
}
