"""Part of Graph: state carried across calls, and cutting its gradients."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from flodl.core.errors import GraphPathError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion
from flodl.nn.protocols import DetachableState, wants_reset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn


class StateControl(GraphBase):
    """Reset, detach, read and write what forward references carry from call to call.

    Training and evaluation share the state unless ``fresh_state`` is used.
    """

    flodl_stateful = True

    @property
    def has_state(self) -> bool:
        """Whether this graph, or one in it, carries state."""
        return any(graph.flodl_plan.cells for graph in self._graphs().values())

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of all state, of nested graphs under their path."""
        return tuple(
            f"{path}{cell.name}"
            for path, graph in self._graphs().items()
            for cell in graph.flodl_plan.cells
        )

    def reset_state(self) -> None:
        """Forget the state of this graph and of everything in it, as before the first call."""
        self.flodl_start_anew()
        for module in _outermost(self, wants_reset):
            module.reset()  # type: ignore[operator] # found by that method

    def reset(self) -> None:
        """Do what ``reset_state`` does; a loop calls it on a graph that is its body."""
        self.flodl_start_anew()
        memory = self.flodl_memory
        if memory.resettable is None:
            # Once for each set of modules: the search would take as long as a small body.
            memory.resettable = tuple(_outermost(self, wants_reset))  # type: ignore[arg-type] # found by that
        for module in memory.resettable:
            module.reset()

    def detach_state(self) -> None:
        """Cut the gradient history of state, retained tags and traces, here and in all modules."""
        memory = self.flodl_memory
        if not memory.fixed:
            memory.cells = tuple(None if c is None else c.detach() for c in memory.cells)
        memory.tagged = tuple(
            value.detach() if isinstance(value, torch.Tensor) else value for value in memory.tagged
        )
        for report in memory.reports:
            report.detach()
        for module in _outermost(self, lambda module: isinstance(module, DetachableState)):
            module.detach_state()  # type: ignore[operator] # found by that method

    def end_step(self) -> None:
        """Close a training step: gradients do not flow into the next one.

        While profiling, the times of the step are collected.
        """
        self.detach_state()
        if self._profiling:
            self.flodl_collect_timings()
        self._step_count += 1

    def end_sequence(self) -> None:
        """Close a sequence: the next call starts without state."""
        self.reset_state()

    @property
    def step_count(self) -> int:
        """How often ``end_step`` was called."""
        return self._step_count

    def get_state(self) -> dict[str, torch.Tensor]:
        """Return the stored state by name, without copying; what is not stored yet is left out."""
        return {
            f"{path}{cell.name}": value
            for path, graph in self._graphs().items()
            for cell, value in zip(graph.flodl_plan.cells, graph.flodl_memory.cells, strict=True)
            if value is not None
        }

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Make ``state`` the stored state; names left out start anew.

        Raises:
            GraphPathError: A name that is no state; nothing has changed then.
        """
        names = self.state_names
        for name in state:
            if name not in names:
                raise GraphPathError(f"no state {name!r}", hint=suggestion(name, names))
        for path, graph in self._graphs().items():
            cells = tuple(state.get(f"{path}{cell.name}") for cell in graph.flodl_plan.cells)
            graph.flodl_write_cells(cells)

    @contextlib.contextmanager
    def fresh_state(self) -> Iterator[None]:
        """Run the block without the current state and put it back afterwards.

        For an evaluation in the middle of training:

            with graph.fresh_state(), torch.no_grad():
                predictions = graph(batch)
        """
        saved = self.get_state()
        self.reset_state()
        try:
            yield
        finally:
            self.set_state(saved)

    def _graphs(self) -> dict[str, GraphBase]:
        """Return this graph and all graphs in it by path, with a dot after a path."""
        return {
            f"{path}." if path else "": module
            for path, module in self.named_modules()
            if isinstance(module, GraphBase)
        }


def _outermost(module: nn.Module, wanted: Callable[[object], bool]) -> Iterator[nn.Module]:
    """Yield the modules below ``module`` that are wanted, but none below one of them."""
    for child in module.children():
        if wanted(child):
            yield child
        else:
            yield from _outermost(child, wanted)
