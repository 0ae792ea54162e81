"""FlowBuilder: describes a model as data flow, step by step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self, final

from flodl.core.errors import FlowError
from flodl.graph.builders.constructs import Constructs
from flodl.graph.builders.draft import Draft
from flodl.graph.builders.finish import make_plan
from flodl.graph.builders.handle import consuming
from flodl.graph.builders.names import Names
from flodl.graph.builders.streams import Streams, chain
from flodl.graph.check import warn_of_doubts
from flodl.graph.graph import Graph
from flodl.graph.ir import Tag
from flodl.graph.naming import check_argument

if TYPE_CHECKING:
    from torch import nn

    from flodl.graph.builders.modules import Step


@final
class FlowBuilder(Streams, Constructs, Names):
    """Describes a model as data flow; ``build`` returns it as a ``Graph``, a ``nn.Module``.

    Every method uses the builder up and returns the next one, so calls are chained:

        model = (
            FlowBuilder(nn.Linear(2, 16)).tag("hidden")
            .through(nn.GELU())
            .also(nn.Linear(16, 16))
            .through(nn.Linear(16, 2))
            .build()
        )

    A plain function may stand wherever a module may.

    Args:
        module: First step; without it the flow begins with the input itself.
        input_name: Name of the graph's first input.
        key: Namespace of the first step's parameters.
        out: Index or key that picks from a first step that returns several values.

    Raises:
        FlowError: From every method, at the call that is wrong; the builder stays usable.
    """

    def __init__(
        self,
        module: Step | None = None,
        *,
        input_name: str = "input",
        key: str | None = None,
        out: int | str | None = None,
    ) -> None:
        super().__init__(Draft())
        check_argument(input_name, "FlowBuilder(input_name=)")
        start = self._draft.add_input(input_name, 0)
        self._draft.streams = [start]
        if module is not None:
            chain(self._draft, module, "FlowBuilder", key=key, out=out)
        elif key is not None or out is not None:
            raise FlowError("FlowBuilder(): key= and out= need a module")

    @classmethod
    def from_sequential(cls, modules: nn.Sequential) -> FlowBuilder:
        """Begin with the steps of a ``nn.Sequential``; parameters keep their names."""
        builder = cls()
        for name, module in modules.named_children():
            builder = builder.through(module, key=name)
        return builder

    def copy(self) -> Self:
        """Return an independent builder at this point; both share modules, and so weights."""
        self._check_unused("copy")
        return self._then(self._draft.copy())

    @consuming
    def verbose(self, on: bool = True) -> Self:
        """Make ``build`` log the finished graph's tree to the ``flodl`` logger."""
        draft = self._draft.copy()
        draft.verbose = on
        return self._then(draft)

    @consuming
    def build(self, *, example: Any = None) -> Graph:
        """Return the graph.

        Args:
            example: An input, or a tuple of all inputs: shapes are computed through the graph,
                without running it, and the first mismatch is raised with its node.

        Raises:
            FlowError: A reference that no step was tagged with, open streams, or labels that
                clash.
        """
        draft = self._draft
        plan, placed = make_plan(draft, Graph)
        warn_of_doubts(plan, draft.modules, stacklevel=4)
        graph = Graph(plan, placed, draft.starts)
        for module in graph.modules():
            if isinstance(module, Graph) and module is not graph:
                module.flodl_is_composed = True
        if example is not None:
            graph.summary(example)
        if draft.verbose:
            logging.getLogger("flodl").info("%s", graph.tree_summary())
        return graph

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Show the flow so far, in notebooks; open ends count as outputs."""
        draft = self._draft.copy()
        steps = f"FlowBuilder with {len(draft.nodes)} steps"
        if draft.readers.keys() - draft.tags.keys():
            return {"text/plain": f"{steps}; references are still open"}
        if len(draft.streams) > 1 and not draft.outputs:
            for number, port in enumerate(draft.streams):
                draft.tags[f"stream_{number}"] = Tag(f"stream_{number}", port)
            draft.outputs = tuple(f"stream_{number}" for number in range(len(draft.streams)))
        plan, placed = make_plan(draft, Graph)
        return {"text/plain": steps, "image/svg+xml": Graph(plan, placed, draft.starts).svg()}
