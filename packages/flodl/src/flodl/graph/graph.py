"""Graph: the module a flow builds, put together from its parts."""

from __future__ import annotations

from typing import final

from flodl.graph.capture import Capture
from flodl.graph.drawing import Drawing
from flodl.graph.export import Export
from flodl.graph.observe import Tags, Traces
from flodl.graph.saving import Saving
from flodl.graph.stepping import Stepping
from flodl.graph.tree import Tree


@final
class Graph(Tags, Traces, Drawing, Tree, Saving, Stepping, Capture, Export):
    """A ``torch.nn.Module`` described as data flow; made by ``FlowBuilder.build``.

    Calling it runs straight-line code that was generated once. Everything that works on modules
    works on it: ``state_dict``, ``to``, hooks, pickle, ``torch.compile``.
    """
