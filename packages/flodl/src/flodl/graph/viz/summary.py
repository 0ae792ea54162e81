"""A graph as a table: shapes and FLOPs by running it on the meta device: nothing is computed."""

from __future__ import annotations

import dataclasses
import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from flodl.graph.base import GraphBase
from flodl.graph.introspection import NodeInfo, node_infos
from flodl.graph.nodes import CONSTRUCTS
from flodl.graph.twin import meta_twin_of
from flodl.graph.viz.text import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = ("node", "tag", "type", "inputs", "output", "params", "trainable", "FLOPs")


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One step.

    Attributes:
        id: The node; indented by its depth.
        tag: Its tags.
        type: Class name of its module, or construct.
        inputs: Ids of the nodes it reads.
        output: Shape of its output, or ``?`` without an example.
        params: Elements of its parameters.
        trainable: Those that require gradients.
        flops: Operations of matrix products, convolutions and attention in a forward pass, as
            ``torch.utils.flop_counter`` counts them; ``None`` without an example.
        is_dynamic: Whether the shape depends on data; it was computed for branch 0 or one
            iteration.
    """

    id: str
    tag: str
    type: str
    inputs: str
    output: str
    params: int
    trainable: int
    flops: int | None = None
    is_dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """A table of all steps, with totals over the whole graph."""

    title: str
    rows: tuple[SummaryRow, ...]
    params: int
    trainable: int
    flops: int | None = None

    def __str__(self) -> str:
        table = self._table()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in table
        ]
        lines.insert(1, "-" * (sum(widths) + 2 * len(widths) - 2))
        lines += [lines[1], f"{self.title}: {self._total()}"]
        if any(row.is_dynamic for row in self.rows):
            lines.append("* depends on data: shown for branch 0, or for one iteration")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        titles = "".join(f"<th>{cell}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        return (
            f"<table><caption>{html.escape(self.title)}: {self._total()}</caption>"
            f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _table(self) -> list[tuple[str, ...]]:
        columns = len(_HEAD) - (self.flops is None)
        return [line[:columns] for line in (_HEAD, *map(_cells, self.rows))]

    def _total(self) -> str:
        counts = [
            f"{count_text(self.params)} params",
            f"{count_text(self.trainable)} trainable",
            f"{count_text(self.params - self.trainable)} frozen",
        ]
        if self.flops is not None:
            counts.append(f"{count_text(self.flops)} FLOPs")
        return ", ".join(counts)


def summarize(graph: GraphBase, example: Any, depth: int) -> Summary:
    """Return the table of a graph; ``depth`` says how many levels of nested graphs to open."""
    outline = outline_of(graph, example) if example is not None else Outline()
    title = f"graph {graph.label!r}" if graph.label else "graph"
    parameters = list(graph.parameters())
    return Summary(
        title=title,
        rows=tuple(_rows(graph, "", outline, depth, "")),
        params=_numel(parameters),
        trainable=_numel([item for item in parameters if item.requires_grad]),
        flops=outline.total,
    )


@dataclass(slots=True)
class Outline:
    """What a run without values shows of each node, by the path of its graph and its id.

    Attributes:
        shapes: Of the outputs.
        flops: Operations that torch counts.
        total: All of them, ``None`` before the run.
    """

    shapes: dict[tuple[str, str], str] = field(default_factory=dict)
    flops: dict[tuple[str, str], int] = field(default_factory=dict)
    total: int | None = None


def outline_of(graph: GraphBase, example: Any) -> Outline:
    """Run a twin without memory: weights, statistics and state of the graph are not touched."""
    twin, outline = meta_twin_of(graph), Outline()
    counter = FlopCounterMode(display=False)
    for path, module in twin.named_modules():
        if isinstance(module, GraphBase):
            module.flodl_set_outlining(_Recorder(outline, path, counter))
    inputs = example if isinstance(example, tuple) else (example,)
    moved = [item.to("meta") if isinstance(item, torch.Tensor) else item for item in inputs]
    with torch.no_grad(), torch.device("meta"), counter:
        twin(*moved)
    outline.total = counter.get_total_flops()
    return outline


class _Recorder:
    """Notes shapes and operations of one graph's nodes."""

    def __init__(self, outline: Outline, path: str, counter: FlopCounterMode) -> None:
        self._outline = outline
        self._path = path
        self._counter = counter
        self._before = 0

    def __call__(self, node: str, value: Any) -> None:
        now = self._counter.get_total_flops()
        self._outline.shapes[self._path, node] = _shape_text(value)
        # The entry of a graph comes first and computes nothing: it takes the mark.
        is_entry = isinstance(value, torch.Tensor) and node.startswith("input_")
        self._outline.flops[self._path, node] = 0 if is_entry else now - self._before
        self._before = now


def _shape_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(list(value.shape))
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shape_text, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shape_text(item)}" for key, item in value.items()) + "}"
    return type(value).__name__


def _rows(
    graph: GraphBase, path: str, outline: Outline, depth: int, indent: str
) -> list[SummaryRow]:
    rows = []
    plan = graph.flodl_plan
    nodes = {node.id: node for node in plan.nodes}
    for info in node_infos(plan, graph.get_submodule):
        node = nodes[info.id]
        modules = graph.flodl_modules_of(node)
        is_dynamic = CONSTRUCTS[node.op].blocker(node, modules) is not None
        row = _row(info, modules, indent, is_dynamic)
        place = (path, node.id)
        rows.append(
            dataclasses.replace(
                row, output=outline.shapes.get(place, "?"), flops=outline.flops.get(place)
            )
        )
        inner = modules.get("")
        if isinstance(inner, GraphBase) and depth > 1:
            # The first name under which torch finds the graph is the one shapes stand under.
            inside = next(
                f"{path}.{name}" if path else name
                for name, module in graph.named_modules()
                if module is inner
            )
            rows += _rows(inner, inside, outline, depth - 1, indent + "  ")
    return rows


def _row(
    info: NodeInfo, modules: dict[str, nn.Module], indent: str, is_dynamic: bool
) -> SummaryRow:
    parameters = list({item for module in modules.values() for item in module.parameters()})
    return SummaryRow(
        id=indent + info.id,
        tag=" ".join(f"#{tag}" for tag in info.tags),
        type=info.type,
        inputs=", ".join(info.inputs),
        output="?",
        params=info.num_params,
        trainable=_numel([item for item in parameters if item.requires_grad]),
        is_dynamic=is_dynamic,
    )


def _cells(row: SummaryRow) -> tuple[str, ...]:
    name = f"{row.id} *" if row.is_dynamic else row.id
    params = (count_text(row.params), count_text(row.trainable)) if row.params else ("-", "-")
    flops = count_text(row.flops) if row.flops else "-"
    return (name, row.tag, row.type, row.inputs, row.output, *params, flops)


def _numel(parameters: Sequence[torch.Tensor]) -> int:
    return sum(item.numel() for item in parameters if not nn.parameter.is_lazy(item))
