"""A graph as a ``torch.fx`` graph: one node a module, one a function that constructs call."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch.fx
from torch.fx.node import map_aggregate

from flodl.graph.base import GraphBase
from flodl.graph.twin import twin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn
    from torch.fx.proxy import TracerBase

STATE = "state"


def traced(
    graph: GraphBase, run: Callable[..., object], inputs: Sequence[str]
) -> torch.fx.GraphModule:
    """Return what ``run(twin, *inputs)`` does, over the modules of the graph itself.

    The twin has no memory and keeps no tags; ``run`` gives it state.
    """
    twin = twin_of(graph)
    for module in twin.modules():
        if isinstance(module, GraphBase):
            module.flodl_set_tracing(_as_leaves)
    tracer = _Tracer(run, inputs)
    return torch.fx.GraphModule(graph, tracer.trace(twin), "Graph")


class _Tracer(torch.fx.Tracer):
    """Goes into graphs and whatever holds them; any other module is one node."""

    def __init__(self, run: Callable[..., object], inputs: Sequence[str]) -> None:
        super().__init__()
        self._run = run
        self._inputs = inputs

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return not any(isinstance(part, GraphBase) for part in m.modules())

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],  # noqa: ARG002
        is_module: bool,  # noqa: ARG002
        concrete_args: Any = None,  # noqa: ARG002
    ) -> tuple[Callable[..., object], list[Any]]:
        # forward takes any arguments; here they have the names of the inputs.
        places = [self.create_proxy("placeholder", name, (), {}) for name in self._inputs]
        return self._run, [self.root, *places]


def _as_leaves(function: types.FunctionType) -> types.FunctionType:
    """Return generated code whose helpers are nodes, for they look at shapes."""
    known = {
        name: _leaf(value)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType)
        else value
        for name, value in function.__globals__.items()
    }
    return types.FunctionType(function.__code__, known, function.__name__)


def _leaf(function: Callable[..., object]) -> Callable[..., object]:
    def call(*args: Any, **kwargs: Any) -> object:
        tracers: list[TracerBase] = []

        def look(item: Any) -> Any:
            if isinstance(item, torch.fx.Proxy):
                tracers.append(item.tracer)
            return item

        map_aggregate((args, kwargs), look)
        if not tracers:
            return function(*args, **kwargs)
        return tracers[0].create_proxy("call_function", function, args, kwargs)

    return call
