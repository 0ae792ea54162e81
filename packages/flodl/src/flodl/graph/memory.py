"""What a graph keeps between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flodl.graph.nodes.traces import TraceEmit
    from flodl.nn.protocols import Resettable


class Memory:
    """What a graph keeps between calls; not part of its parameters or buffers.

    Attributes:
        cells: Values of state cells in the order of the plan, ``None`` before the first call.
        tagged: Values of the retained tags of the last call, in the order of the flow.
        reports: What its loops did in the last call, in the order of the flow.
        resettable: Modules in the graph that reset themselves; ``None`` before they were sought.
        fixed: Whether cells are buffers that keep their place, as a captured step needs them.
        started: Clock reading at the first call outside the compiler.
        warned: Nodes that have warned already.
        trace_owners: Node that publishes each trace name seen so far.
    """

    def __init__(self, cells: int) -> None:
        self.cells: tuple[torch.Tensor | None, ...] = (None,) * cells
        self.tagged: tuple[Any, ...] = ()
        self.reports: tuple[TraceEmit, ...] = ()
        self.resettable: tuple[Resettable, ...] | None = None
        self.fixed = False
        self.started: float | None = None
        self.warned: set[str] = set()
        self.trace_owners: dict[str, str] = {}

    def drop_values(self) -> None:
        """Let go of what the last call left for reading."""
        self.tagged = ()
        self.reports = ()

    def read(self) -> tuple[torch.Tensor | None, ...]:
        """Return copies of fixed cells for a call, since they change at its end."""
        return tuple(None if cell is None else cell.clone() for cell in self.cells)

    def store(self, cells: tuple[torch.Tensor | None, ...]) -> None:
        """Take the state at the end of a call; fixed cells are overwritten in place."""
        if not self.fixed:
            self.cells = cells
            return
        with torch.no_grad():
            for buffer, value in zip(self.cells, cells, strict=True):
                if buffer is not None and value is not None:
                    buffer.copy_(value)
