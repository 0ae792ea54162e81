"""Outputs, tags and traces of several replicas as those of one; gradients flow back to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from flodl.core.errors import GraphInputError
from flodl.graph.base import GraphBase
from flodl.graph.nodes.traces import OUTPUT, TraceEmit, traced_tags
from flodl.graph.stepping.errors import NamespaceError


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one replica made of one batch."""

    rows: int
    output: Any
    tagged: dict[str, tuple[Any, ...]]
    """Values of the retained tags of each graph, by its path."""
    reports: dict[str, tuple[TraceEmit, ...]]
    """What the loops of each graph did, by its path."""


@final
class Gatherer:
    """Makes one result of those of several replicas, on one device.

    Tensors are concatenated in the order of the parts. Those without dimensions, such as a
    penalty, become their mean weighted by rows; what is no tensor must be the same everywhere, and
    is that of the first part.
    """

    def __init__(self, parts: Sequence[Part], device: torch.device) -> None:
        self._parts = parts
        self._device = device

    def output(self) -> Any:
        """Return the outputs as one.

        Raises:
            GraphInputError: They do not fit together.
        """
        rows = [part.rows for part in self._parts]
        return self._joined([part.output for part in self._parts], rows, "the output")

    def fill(self, graphs: Mapping[str, GraphBase]) -> None:
        """Make tags and traces of graphs, by their paths, those of all parts.

        Raises:
            GraphInputError: Values do not fit together.
            NamespaceError: A name is that of a tag and of another step's trace.
        """
        for path, graph in graphs.items():
            graph.flodl_memory.tagged = self._tagged(path, graph.flodl_flow.retained)
            graph.flodl_memory.reports = self._reports(path)
            for node, report in zip(
                graph.flodl_flow.reports, graph.flodl_memory.reports, strict=False
            ):
                check_namespace(graph, node, report.entries)

    def _tagged(self, path: str, names: Sequence[str]) -> tuple[Any, ...]:
        """Return the tags of a graph, of the replicas whose call reached it."""
        here = [part for part in self._parts if part.tagged[path]]
        rows = [part.rows for part in here]
        return tuple(
            self._joined([part.tagged[path][k] for part in here], rows, f"tag {name!r}")
            for k, name in enumerate(names if here else ())
        )

    def _reports(self, path: str) -> tuple[TraceEmit, ...]:
        here = [part for part in self._parts if part.reports[path]]
        if not here:
            return ()
        rows = [part.rows for part in here]
        same = zip(*(part.reports[path] for part in here), strict=True)
        return tuple(self._report(list(reports), rows) for reports in same)

    def _report(self, reports: list[TraceEmit], rows: Sequence[int]) -> TraceEmit:
        whole = TraceEmit()
        whole.count = max(report.count for report in reports)
        totals = [report.total for report in reports if report.total is not None]
        if totals:
            whole.total = torch.stack([total.to(self._device) for total in totals]).amax(0)
        whole.alive = self._alive(reports, rows)
        for name in dict.fromkeys(name for report in reports for name in report.entries):
            steps = sorted({step for report in reports for step in report.steps.get(name, ())})
            whole.steps[name] = steps
            whole.entries[name] = [self._entry(reports, rows, name, step) for step in steps]
        return whole

    def _entry(self, reports: list[TraceEmit], rows: Sequence[int], name: str, step: int) -> Tensor:
        """Return a trace's value of one iteration, of the replicas that made it."""
        here = [
            (report.entries[name][report.steps[name].index(step)], own)
            for report, own in zip(reports, rows, strict=True)
            if step in report.steps.get(name, ())
        ]
        return self._tensor(
            [value for value, _ in here], [own for _, own in here], f"trace {name!r}"
        )

    def _alive(self, reports: list[TraceEmit], rows: Sequence[int]) -> list[Tensor]:
        longest = max(len(report.alive) for report in reports)
        here = list(zip(reports, rows, strict=True))
        return [
            torch.cat([self._flags(report, step, own) for report, own in here])
            for step in range(longest)
        ]

    def _flags(self, report: TraceEmit, step: int, rows: int) -> Tensor:
        """Return for each row whether an iteration counts; none does that was not made."""
        if step >= len(report.alive):
            return torch.zeros(rows, dtype=torch.bool, device=self._device)
        flags = report.alive[step].to(self._device)
        return flags.expand(rows) if flags.dim() == 0 else flags

    def _joined(self, values: Sequence[Any], rows: Sequence[int], what: str) -> Any:
        # Where a replica's call did not come by a step, that step has no value for its rows.
        there = [k for k, value in enumerate(values) if value is not None]
        if not there:
            return None
        values, rows = [values[k] for k in there], [rows[k] for k in there]
        first = values[0]
        if isinstance(first, Tensor):
            return self._tensor(values, rows, what)
        if isinstance(first, Mapping):
            return {k: self._joined([v[k] for v in values], rows, f"{what}[{k!r}]") for k in first}
        if isinstance(first, list | tuple):
            items = [
                self._joined(same, rows, f"{what}[{k}]")
                for k, same in enumerate(zip(*values, strict=True))
            ]
            is_named = hasattr(first, "_fields")
            return type(first)(*items) if is_named else type(first)(items)
        return first

    def _tensor(self, values: Sequence[Tensor], rows: Sequence[int], what: str) -> Tensor:
        here = [value.to(self._device) for value in values]
        if len(here) == 1:
            return here[0]
        if any(value.dim() == 0 for value in here):
            weights = torch.tensor(rows, dtype=torch.float32, device=self._device)
            stacked = torch.stack(here)
            mean = (stacked * (weights / weights.sum())).sum(0)
            return mean.to(stacked.dtype)
        try:
            return torch.cat(here)
        except RuntimeError as error:
            shapes = ", ".join(str(tuple(value.shape)) for value in here)
            raise GraphInputError(
                f"{what} has shapes {shapes} on the replicas, which cannot be put together",
                hint="give all rows of a batch the same shape",
            ) from error


def snapshot(graph: Mapping[str, GraphBase], rows: int, output: Any) -> Part:
    """Return what the last call of a replica left, its graphs given by path."""
    return Part(
        rows=rows,
        output=output,
        tagged={path: one.flodl_memory.tagged for path, one in graph.items()},
        reports={path: one.flodl_memory.reports for path, one in graph.items()},
    )


def check_namespace(graph: GraphBase, node: str, traces: Mapping[str, object]) -> None:
    """Refuse a trace of a loop whose name is the tag of another step.

    Raises:
        NamespaceError: There is one.
    """
    tags = {tag.name: tag.port.node for tag in graph.flodl_plan.tags}
    own = traced_tags(graph.flodl_plan)
    for name in traces:
        if name != OUTPUT and name in tags and own.get(name) != node:
            raise NamespaceError(
                f"{name!r} is a tag of {tags[name]} and a trace of {node}: gathered from several "
                "devices, each name means one thing",
                hint="publish the trace, or tag the step, under another name",
            )
