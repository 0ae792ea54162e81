"""Short texts for pictures and tables."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from flodl.graph.base import GraphBase

if TYPE_CHECKING:
    from torch import nn

    from flodl.graph.ir import Node

_WIDEST = 30


def count_text(count: int) -> str:
    """Return a count as people read it: ``24``, ``1.2K``, ``3.1M``."""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def time_text(seconds: float) -> str:
    """Return a duration of a node: ``12 µs``, ``1.24 ms``, ``1.50 s``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def port_lines(node: Node, module: nn.Module | None) -> list[str]:
    """Return the names of what goes into a node and comes out, where it is more than the stream."""
    names, outputs = ["stream"], []
    if isinstance(module, GraphBase):
        names, outputs = [module.input_names[0]], list(module.output_names)
    names += [ref.keyword for ref in node.refs]
    lines = _wrapped("in", names) if len(names) > 1 else []
    return [*lines, *(_wrapped("out", outputs) if outputs else [])]


def _wrapped(head: str, names: list[str]) -> list[str]:
    return textwrap.wrap(f"{head}: {', '.join(names)}", _WIDEST, break_long_words=False)


def describe_node(node: Node) -> str:
    """Return what a construct does, in a few words."""
    match node.op:
        case "loop":
            kind, most, mode = node.attr("kind"), node.attr("n"), node.attr("mode")
            how = "" if mode == "auto" else f" {mode}"
            return f"loop \u00d7{most}" if kind == "for" else f"{kind} ≤ {most}{how}"
        case "map":
            n, batched = node.attr("n"), " batched" if node.attr("batched") else ""
            return f"map {node.attr('kind')}{f' {n}' if n else ''}{batched}"
        case "switch":
            mode = node.attr("mode")
            how = "per sample" if node.attr("per_sample") else "" if mode == "auto" else str(mode)
            return f"switch {how}".strip()
        case _:
            return node.op
