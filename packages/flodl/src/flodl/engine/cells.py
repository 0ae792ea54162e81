"""State that graphs carry from step to step, kept in fixed memory while a step is captured."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from flodl.graph import Graph
from flodl.graph.memory import Memory


class StepState:
    """Closes each step of the graphs in a model, and pins their state for a capture.

    A step's gradients end at its border: eager and captured steps detach alike.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._closing = [g for g in _outermost(model) if g.has_state or g.tag_names]
        self._graphs = [graph for graph in self._closing if graph.has_state]
        self._pinned: list[dict[str, Tensor]] | None = None

    @property
    def has_memory(self) -> bool:
        """Whether a step goes on from what the one before has left."""
        return bool(self._graphs)

    def close(self) -> None:
        """End a step, eager or captured."""
        for graph in self._closing:
            graph.end_step()
        if self._pinned is None:
            return
        with torch.no_grad():
            for graph, pinned in zip(self._graphs, self._pinned, strict=True):
                state = graph.get_state()
                if {n: v.shape for n, v in state.items()} != {
                    n: v.shape for n, v in pinned.items()
                }:
                    self._pinned = None
                    return
                for name, value in state.items():
                    if pinned[name] is not value:
                        pinned[name].copy_(value)
                graph.set_state(pinned)

    def pin(self) -> None:
        """Move the state into tensors that keep their place from now on."""
        self._pinned = []
        for graph in self._graphs:
            pinned = {name: value.detach().clone() for name, value in graph.get_state().items()}
            graph.set_state(pinned)
            self._pinned.append(graph.get_state())

    def unpin(self) -> None:
        """Let the state be whatever a step leaves."""
        self._pinned = None

    def is_lost(self) -> bool:
        """Return whether the state has taken another form than the one that was pinned."""
        return self._pinned is None and bool(self._graphs)

    def is_pinned(self) -> bool:
        """Return whether the stored state is still the pinned one: nobody reset or replaced it."""
        if self._pinned is None:
            return not self._graphs
        return all(
            _same(graph.get_state(), pinned)
            for graph, pinned in zip(self._graphs, self._pinned, strict=True)
        )

    def is_settled(self) -> bool:
        """Return whether the state is that of a step before: nobody has just reset it.

        The first step after a reset computes something else than those that follow.
        """
        if self._pinned is None:
            return all(graph.get_state() for graph in self._graphs)
        return self.is_pinned()

    def tags(self) -> list[tuple[Memory, tuple[Any, ...]]]:
        """Return where graphs keep the values of their tags, and the values."""
        inside = [m for g in self._closing for m in g.modules() if isinstance(m, Graph)]
        return [(graph.flodl_memory, graph.flodl_memory.tagged) for graph in inside]

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the present state."""
        return [value for graph in self._graphs for value in graph.get_state().values()]


def _same(state: dict[str, Tensor], pinned: dict[str, Tensor]) -> bool:
    return state.keys() == pinned.keys() and all(state[name] is pinned[name] for name in state)


def _outermost(module: nn.Module) -> list[Graph]:
    if isinstance(module, Graph):
        return [module]
    return [graph for child in module.children() for graph in _outermost(child)]
