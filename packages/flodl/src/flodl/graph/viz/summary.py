"""A graph as a table: shapes by running it on the meta device, which computes nothing."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from flodl.graph.base import GraphBase
from flodl.graph.introspection import NodeInfo, node_infos
from flodl.graph.nodes import CONSTRUCTS
from flodl.graph.twin import meta_twin_of
from flodl.graph.viz.text import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = ("node", "tag", "type", "inputs", "output", "params", "trainable")


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
    is_dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """A table of all steps, with totals over the whole graph."""

    title: str
    rows: tuple[SummaryRow, ...]
    params: int
    trainable: int

    def __str__(self) -> str:
        table = [_HEAD, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in table
        ]
        lines.insert(1, "-" * (sum(widths) + 2 * len(widths) - 2))
        frozen = self.params - self.trainable
        total = f"{count_text(self.params)} params, {count_text(self.trainable)} trainable"
        lines += [lines[1], f"{self.title}: {total}, {count_text(frozen)} frozen"]
        if any(row.is_dynamic for row in self.rows):
            lines.append("* depends on data: shown for branch 0, or for one iteration")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{cell}</th>" for cell in _HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>"
            for row in self.rows
        )
        total = f"{count_text(self.params)} params, {count_text(self.trainable)} trainable"
        return (
            f"<table><caption>{html.escape(self.title)}: {total}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def summarize(graph: GraphBase, example: Any, depth: int) -> Summary:
    """Return the table of a graph; ``depth`` says how many levels of nested graphs to open."""
    shapes = shapes_of(graph, example) if example is not None else {}
    title = f"graph {graph.label!r}" if graph.label else "graph"
    parameters = list(graph.parameters())
    return Summary(
        title=title,
        rows=tuple(_rows(graph, "", shapes, depth, "")),
        params=_numel(parameters),
        trainable=_numel([item for item in parameters if item.requires_grad]),
    )


def shapes_of(graph: GraphBase, example: Any) -> dict[tuple[str, str], str]:
    """Return the shape of each node's output, by the path of its graph and its id.

    Runs a twin without memory: weights, statistics and state of the graph are not touched.
    """
    twin = meta_twin_of(graph)
    shapes: dict[tuple[str, str], str] = {}
    for path, module in twin.named_modules():
        if isinstance(module, GraphBase):
            module.flodl_set_outlining(_Recorder(shapes, path))
    inputs = example if isinstance(example, tuple) else (example,)
    moved = [item.to("meta") if isinstance(item, torch.Tensor) else item for item in inputs]
    with torch.no_grad(), torch.device("meta"):
        twin(*moved)
    return shapes


class _Recorder:
    """Notes the shapes of one graph's nodes."""

    def __init__(self, shapes: dict[tuple[str, str], str], path: str) -> None:
        self._shapes = shapes
        self._path = path

    def __call__(self, node: str, value: Any) -> None:
        self._shapes[self._path, node] = _shape_text(value)


def _shape_text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(list(value.shape))
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shape_text, value))})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shape_text(item)}" for key, item in value.items()) + "}"
    return type(value).__name__


def _rows(
    graph: GraphBase, path: str, shapes: dict[tuple[str, str], str], depth: int, indent: str
) -> list[SummaryRow]:
    rows = []
    plan = graph.flodl_plan
    nodes = {node.id: node for node in plan.nodes}
    for info in node_infos(plan, graph.get_submodule):
        node = nodes[info.id]
        modules = graph.flodl_modules_of(node)
        is_dynamic = CONSTRUCTS[node.op].blocker(node, modules) is not None
        rows.append(_row(info, modules, shapes.get((path, node.id), "?"), indent, is_dynamic))
        inner = modules.get("")
        if isinstance(inner, GraphBase) and depth > 1:
            # The first name under which torch finds the graph is the one shapes stand under.
            place = next(
                f"{path}.{name}" if path else name
                for name, module in graph.named_modules()
                if module is inner
            )
            rows += _rows(inner, place, shapes, depth - 1, indent + "  ")
    return rows


def _row(
    info: NodeInfo, modules: dict[str, nn.Module], shape: str, indent: str, is_dynamic: bool
) -> SummaryRow:
    parameters = list({item for module in modules.values() for item in module.parameters()})
    return SummaryRow(
        id=indent + info.id,
        tag=" ".join(f"#{tag}" for tag in info.tags),
        type=info.type,
        inputs=", ".join(info.inputs),
        output=shape,
        params=info.num_params,
        trainable=_numel([item for item in parameters if item.requires_grad]),
        is_dynamic=is_dynamic,
    )


def _cells(row: SummaryRow) -> tuple[str, ...]:
    name = f"{row.id} *" if row.is_dynamic else row.id
    params = (count_text(row.params), count_text(row.trainable)) if row.params else ("-", "-")
    return (name, row.tag, row.type, row.inputs, row.output, *params)


def _numel(parameters: Sequence[torch.Tensor]) -> int:
    return sum(item.numel() for item in parameters if not nn.parameter.is_lazy(item))
