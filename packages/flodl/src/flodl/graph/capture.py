"""Part of Graph: whether it compiles and captures whole, and what stands in the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import CaptureError
from flodl.graph.base import GraphBase
from flodl.graph.blockers import blockers
from flodl.graph.ir import CellStart
from flodl.graph.nodes.base import Blocker
from flodl.graph.twin import twin_of

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """Whether a graph can be captured whole.

    Attributes:
        blockers: What stands in the way, in the order of the modules.
    """

    blockers: tuple[Blocker, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.blockers

    def __str__(self) -> str:
        return "\n".join(map(str, self.blockers)) if self.blockers else "can be captured whole"

    def require(self) -> None:
        """Raise unless nothing stands in the way.

        Raises:
            CaptureError: Lists everything, each with its remedy.
        """
        if self.blockers:
            raise CaptureError(f"the graph cannot be captured whole:\n{self}")


class Capture(GraphBase):
    """Says what can be captured, and gives state a fixed place for it."""

    def capture_report(self) -> CaptureReport:
        """Return what cannot be compiled or captured whole, in this graph and everything in it.

        A module says so for itself with an attribute ``flodl_dynamic = "reason"``.
        """
        return CaptureReport(tuple(blockers(self)))

    @property
    def is_static(self) -> bool:
        """Whether each call does the same, so that it compiles and captures whole."""
        return self.capture_report().ok

    @property
    def may_skip_parameters(self) -> bool:
        """Whether a call can leave parameters without gradient: by switch, or a loop not entered.

        Code that averages gradients over processes must take missing ones as zeros then.
        """
        return any(item.kind in {"switch", "while_cond"} for item in blockers(self))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this graph in place with ``torch.compile``; whole, if it is static."""
        kwargs.setdefault("fullgraph", self.is_static)
        super().compile(*args, **kwargs)

    def static_cells(self, *example: Any) -> None:
        """Give all state, here and in graphs within, buffers that keep their place.

        Reading, writing and ``reset_state`` go through them from then on, so that a captured step
        carries state; gradients end at each call. Needed once, before the capture.

        Args:
            example: Inputs of the size of a batch, to learn the shapes of state that is not
                there yet.

        Raises:
            CaptureError: State begins with a function, which a captured step cannot call again.
        """
        graphs = [module for module in self.modules() if isinstance(module, GraphBase)]
        for graph in graphs:
            for cell in graph.flodl_plan.cells:
                if cell.start is CellStart.CALL:
                    raise CaptureError(
                        f"state {cell.name!r} begins with a function; a captured step cannot "
                        "call it again",
                        hint="declare its start as a shape or a tensor",
                    )
        missing = any(None in _presence(graph) for graph in graphs)
        if missing and not example:
            raise CaptureError(
                "static_cells(): some state was never stored, so its shape is unknown",
                hint="pass example inputs, or call the graph once before",
            )
        shapes = _cells_after(self, example) if missing else {}
        for path, graph in _graphs_by_path(self):
            graph.flodl_fix_cells(shapes.get(path, graph.flodl_memory.cells))

    def release_cells(self) -> None:
        """Undo ``static_cells``: state is passed from call to call again, with its gradients."""
        for module in self.modules():
            if isinstance(module, GraphBase):
                module.flodl_fix_cells(None)


def _presence(graph: GraphBase) -> list[bool | None]:
    return [None if cell is None else True for cell in graph.flodl_memory.cells]


def _graphs_by_path(root: nn.Module) -> list[tuple[str, GraphBase]]:
    return [(path, item) for path, item in root.named_modules() if isinstance(item, GraphBase)]


def _cells_after(
    graph: GraphBase, example: tuple[Any, ...]
) -> dict[str, tuple[torch.Tensor | None, ...]]:
    """Return all cells, by the path of their graph, as one call of a twin leaves them."""
    twin = twin_of(graph).eval()
    with torch.no_grad():
        twin(*example)
    return {path: inner.flodl_memory.cells for path, inner in _graphs_by_path(twin)}
