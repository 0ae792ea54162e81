"""The constructs a flow is made of, by the ``op`` of their nodes."""

from flodl.graph.nodes.base import Construct
from flodl.graph.nodes.chain import Add, ModuleCall
from flodl.graph.nodes.gate import Gate
from flodl.graph.nodes.inputs import Input
from flodl.graph.nodes.loop import Loop
from flodl.graph.nodes.mapping import Map
from flodl.graph.nodes.merge import Merge
from flodl.graph.nodes.state import StateRead
from flodl.graph.nodes.switch import Switch

_ALL = (Add, Gate, Input, Loop, Map, Merge, ModuleCall, StateRead, Switch)

CONSTRUCTS: dict[str, Construct] = {kind.op: kind() for kind in _ALL}
