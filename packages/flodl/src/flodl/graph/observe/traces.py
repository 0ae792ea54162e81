"""Part of Graph: what the iterations of loops published in the last call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.core.errors import GraphPathError, TraceError
from flodl.graph.base import GraphBase
from flodl.graph.naming import suggestion
from flodl.graph.nodes.traces import OUTPUT, TraceEmit, traced_tags
from flodl.graph.paths import PathKind, find

if TYPE_CHECKING:
    from torch import Tensor


class Traces(GraphBase):
    """Reads named values by iteration, and how many iterations loops made.

    A trace is named by a loop body that publishes it, or by the tag of a loop with
    ``trace=True``. Values carry their gradients, and are dropped when the next call begins.
    """

    def traces(self, name: str) -> list[Tensor] | None:
        """Return the values of a trace, oldest first; ``None`` if nothing was published so.

        Raises:
            TraceError: Several loops published that name.
        """
        return values_of(self, name)

    def last_trace(self, name: str) -> Tensor | None:
        """Return the newest value of a trace, or ``None``."""
        values = values_of(self, name)
        return values[-1] if values else None

    @property
    def traces_named(self) -> dict[str, list[Tensor]]:
        """All traces of the last call by name, except names that several loops published."""
        return named_traces(self)

    def traces_by_node(self, node: str) -> dict[str, list[Tensor]]:
        """Return the traces of one loop; its own output stands under its first tag.

        Raises:
            GraphPathError: No node has that id.
        """
        self._check_node(node, "traces_by_node")
        report = _reports(self).get(node)
        if report is None:
            return {}
        return {
            (name if name != OUTPUT else _tags_of(self, node)[0]): list(values)
            for name, values in report.entries.items()
        }

    def trace_steps(self, name: str) -> list[int]:
        """Return the iteration of each entry of a trace; empty if there is none."""
        found = _find(self, name)
        return [] if found is None else list(found[0].steps[found[1]])

    def trace_mask(self, name: str) -> Tensor | None:
        """Return which entries of a trace count: flags by entry, and by row where rows halt alone.

        Loops that mask run all iterations; what comes after the halt does not count.
        """
        found = _find(self, name)
        return None if found is None else found[0].mask(found[1])

    def traces_at(self, path: str) -> list[Tensor] | Tensor | None:
        """Return a trace at a path, or with an index, as in ``"letter.scan[-1]"``, one entry.

        Raises:
            GraphPathError: The path leads nowhere, to a graph, or past the trace's end.
        """
        place = find(self, path)
        if place.kind is PathKind.SUBGRAPH:
            raise GraphPathError(f"traces_at({path!r}): that is a subgraph", hint="name a trace")
        values = values_of(place.graph, place.name)
        if place.index is None or values is None:
            return values
        try:
            return values[place.index]
        except IndexError:
            raise GraphPathError(
                f"traces_at({path!r}): the trace has {len(values)} entries"
            ) from None

    def iterations(self, name: str) -> int | Tensor | None:
        """Return how many iterations a loop made in the last call; ``None`` before it.

        Args:
            name: A tag of the loop, or its id. With ``halt="sample"`` or ``mode="act"`` the
                answer is a tensor with a number for each row.

        Raises:
            GraphPathError: There is no such loop.
        """
        tags = {tag.name: tag.port.node for tag in self.flodl_plan.tags}
        loops = {node.id: node for node in self.flodl_plan.nodes if node.op == "loop"}
        node = loops.get(tags.get(name, name))
        if node is None:
            raise GraphPathError(
                f"iterations({name!r}): no such loop", hint=suggestion(name, [*tags, *loops])
            )
        if node.attr("kind") == "for":
            count = node.attr("n")
            assert isinstance(count, int), "the builder gives every loop a number"
            return count
        report = _reports(self).get(node.id)
        return None if report is None else report.iterations()

    def _check_node(self, node: str, call: str) -> None:
        known = [item.id for item in self.flodl_plan.nodes]
        if node not in known:
            raise GraphPathError(f"{call}({node!r}): no such node", hint=suggestion(node, known))


def values_of(graph: GraphBase, name: str) -> list[Tensor] | None:
    """Return the entries of a trace of the last call, or ``None``."""
    found = _find(graph, name)
    return None if found is None else list(found[0].entries[found[1]])


def named_traces(graph: GraphBase) -> dict[str, list[Tensor]]:
    """Return all traces of the last call by name, except names that several loops published."""
    names: dict[str, int] = {}
    for node, report in _reports(graph).items():
        for key in report.entries:
            for name in [key] if key != OUTPUT else _tags_of(graph, node):
                names[name] = names.get(name, 0) + 1
    return {name: values_of(graph, name) or [] for name, count in names.items() if count == 1}


def _find(graph: GraphBase, name: str) -> tuple[TraceEmit, str] | None:
    """Return the report of the loop that a name belongs to, and the name in it."""
    reports = _reports(graph)
    tagged = traced_tags(graph.flodl_plan).get(name)
    if tagged is not None:
        return (reports[tagged], OUTPUT) if tagged in reports else None
    owners = [node for node, report in reports.items() if name in report.entries and name]
    if len(owners) > 1:
        raise TraceError(
            f"trace {name!r} was published by {' and '.join(owners)}",
            hint="read one of them with traces_by_node()",
        )
    return (reports[owners[0]], name) if owners else None


def _reports(graph: GraphBase) -> dict[str, TraceEmit]:
    reports = graph.flodl_memory.reports
    return dict(zip(graph.flodl_flow.reports, reports, strict=True)) if reports else {}


def _tags_of(graph: GraphBase, node: str) -> list[str]:
    return [tag.name for tag in graph.flodl_plan.tags if tag.port.node == node]
