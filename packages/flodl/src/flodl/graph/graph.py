"""Graph: the module a flow builds, put together from its parts."""

from __future__ import annotations

from typing import final

from flodl.graph.observe import Observing
from flodl.graph.saving import Saving
from flodl.graph.state import StateControl


@final
class Graph(Observing, Saving, StateControl):
    """A ``torch.nn.Module`` described as data flow; made by ``FlowBuilder.build``.

    Calling it runs straight-line code that was generated once. Everything that works on modules
    works on it: ``state_dict``, ``to``, hooks, pickle, ``torch.compile``.
    """
