"""What can only be checked when a flow is complete: open ends, dead steps, nodes and modules."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from flodl.core.errors import FlowError, FlowWarning
from flodl.graph.nodes import CONSTRUCTS
from flodl.graph.nodes.traces import LoopBody, clash, traced_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn

    from flodl.graph.ir import Node, Plan, Tag


def check_references(readers: Mapping[str, Sequence[str]], tags: Mapping[str, Tag]) -> None:
    """Refuse references to names that no step was tagged with.

    Raises:
        FlowError: Lists all of them.
    """
    open_names = [name for name in readers if name not in tags]
    if open_names:
        raise FlowError(
            f"build: using({', '.join(map(repr, open_names))}): no such tag; "
            f"tags: {', '.join(tags) or 'none'}",
            hint="put .tag(…) on a step, or declare it with .input(…) before it is used",
        )


def check_starts(starts: Iterable[str], readers: Mapping[str, Sequence[str]]) -> None:
    """Refuse a declared start of state that nothing carries.

    Raises:
        FlowError: A name that no forward reference uses.
    """
    for name in starts:
        if name not in readers:
            raise FlowError(
                f"build: state({name!r}): no forward reference of that name; "
                f"there are: {', '.join(readers) or 'none'}",
                hint="a reference carries state when using() comes before tag()",
            )


def check_nodes(plan: Plan, modules: Mapping[str, Mapping[str, nn.Module]]) -> None:
    """Let every construct check its nodes.

    Raises:
        FlowError: A node cannot work.
    """
    for node in plan.nodes:
        CONSTRUCTS[node.op].check(node, modules.get(node.id, {}))


def check_traces(plan: Plan, modules: Mapping[str, Mapping[str, nn.Module]]) -> None:
    """Refuse a traced loop without a tag, and declared trace names that mean two things.

    Raises:
        FlowError: A loop with ``trace=True`` has no tag to keep its outputs under.
        TraceError: A name is declared by two loops, or is the tag of a traced one.
    """
    owners = traced_tags(plan)
    for node in plan.nodes:
        if node.op != "loop":
            continue
        if node.attr("trace") and node.id not in owners.values():
            raise FlowError(
                f"build: {node.id} has trace=True but no tag to keep its outputs under",
                hint="put .tag(…) right after the loop",
            )
        body = modules[node.id]["body"]
        for name in body.emits if isinstance(body, LoopBody) else ():
            if name in owners:
                raise clash(name, owners[name], node.id)
            owners[name] = node.id


def warn_of_doubts(
    plan: Plan, modules: Mapping[str, Mapping[str, nn.Module]], stacklevel: int
) -> None:
    """Warn of steps whose result is neither used nor tagged, and of what constructs doubt."""
    used = {port.node for node in plan.nodes for port in node.sources()}
    used |= {port.node for _, port in plan.outputs} | {tag.port.node for tag in plan.tags}
    doubts = [
        f"{node.id} is computed but never used: tag it, or leave it out"
        for node in plan.nodes
        if node.id not in used and not _is_argument(node)
    ]
    for node in plan.nodes:
        doubts += CONSTRUCTS[node.op].doubts(node, modules.get(node.id, {}))
    for text in doubts:
        warnings.warn(text, FlowWarning, stacklevel=stacklevel)


def _is_argument(node: Node) -> bool:
    return node.op == "input"
