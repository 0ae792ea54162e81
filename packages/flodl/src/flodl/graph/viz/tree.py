"""Nested graphs and parameters as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from flodl.graph.base import GraphBase
from flodl.graph.introspection import count_parameters
from flodl.graph.paths import children_of
from flodl.graph.viz.text import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence


def tree_text(graph: GraphBase) -> str:
    """Return one line for each graph and tag, indented by depth."""
    return "\n".join(_lines(graph, graph.label or "graph", ""))


def _lines(graph: GraphBase, name: str, indent: str) -> list[str]:
    parameters = list(graph.parameters())
    count = count_text(count_parameters([graph]))
    lines = [
        f"{indent}{name} ({graph.short_hash}) {len(parameters)} tensors, {count} params"
        f"{_frozen_mark(parameters)}"
    ]
    steps = {node.id: node for node in graph.flodl_plan.nodes}
    for tag in graph.flodl_plan.tags:
        node = steps[tag.port.node]
        owners = [steps[owner] for owner in node.owners] or [node]
        modules = [graph.get_submodule(slot.path) for owner in owners for slot in owner.slots]
        found = [item for module in modules for item in module.parameters()]
        kind = f" {count_text(count_parameters(modules))} params" if found else ""
        hidden = " internal" if tag.internal else ""
        lines.append(f"{indent}  #{tag.name}: {node.type}{kind}{_frozen_mark(found)}{hidden}")
    for label, child in children_of(graph).items():
        lines += _lines(child, label, indent + "  ")
    return lines


def _frozen_mark(parameters: Sequence[nn.Parameter]) -> str:
    if not parameters:
        return ""
    frozen = sum(not item.requires_grad for item in parameters)
    if frozen == len(parameters):
        return " [frozen]"
    return f" [{frozen} of {len(parameters)} frozen]" if frozen else ""


def param_table(graph: GraphBase) -> str:
    """Return a table of the steps with parameters: tensors, elements, share of the total."""
    total = count_parameters([graph])
    rows = [("path", "tensors", "params", "share", "")]
    for node in graph.flodl_plan.nodes:
        for slot in node.slots:
            module = graph.get_submodule(slot.path)
            found = list(module.parameters())
            if found:
                count = count_parameters([module])
                share = f"{count / total:.1%}" if total else "-"
                mark = _frozen_mark(found).strip()
                rows.append((slot.path, str(len(found)), count_text(count), share, mark))
    rows.append(("total", str(len(list(graph.parameters()))), count_text(total), "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in {0, 4} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
