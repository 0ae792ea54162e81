"""From a finished draft to a plan: names resolved, keys given, nodes in order."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flodl.core.errors import FlowError
from flodl.graph.base import GraphBase
from flodl.graph.check import check_nodes, check_references, check_starts, check_traces
from flodl.graph.ir import Plan
from flodl.graph.keys import with_keys
from flodl.graph.naming import suggestion
from flodl.graph.paths import check_labels
from flodl.graph.schedule import in_order

if TYPE_CHECKING:
    from torch import nn

    from flodl.graph.builders.draft import Draft
    from flodl.graph.ir import Port


def make_plan(draft: Draft, root: type[nn.Module]) -> tuple[Plan, dict[str, nn.Module]]:
    """Return the plan of a finished draft, and each module once, by its path in ``root``.

    Raises:
        FlowError: Something is missing that only a whole flow can show.
    """
    check_references(draft.readers, draft.tags)
    check_starts(draft.starts, draft.readers)
    _check_auxiliary_inputs(draft)
    tags = [
        dataclasses.replace(tag, internal=draft.internal.get(name, name.startswith("_")))
        for name, tag in draft.tags.items()
    ]
    for name in draft.internal:
        if name not in draft.tags:
            raise FlowError(
                f"build: internal({name!r}): no such tag", hint=suggestion(name, draft.tags)
            )
    outputs: tuple[tuple[str, Port], ...]
    if draft.outputs:
        outputs = tuple((name, draft.tags[name].port) for name in draft.outputs)
    else:
        outputs = (("", draft.stream("build")),)
    check_labels(draft.nodes.values(), tags, draft.modules)
    cells = draft.cells()
    nodes, placed = with_keys(
        draft.finished_nodes(cells),
        draft.modules,
        requested=draft.keys,
        tags=tags,
        labels=_labels(draft),
        root=root,
    )
    plan = Plan(
        inputs=tuple(draft.inputs),
        nodes=in_order(nodes),
        outputs=outputs,
        tags=tuple(tags),
        groups=tuple(draft.groups.items()),
        cells=cells,
        label=draft.label,
    )
    check_nodes(plan, draft.modules)
    check_traces(plan, draft.modules)
    return plan, placed


def _labels(draft: Draft) -> dict[str, str]:
    return {
        node_id: module.label
        for node_id, slots in draft.modules.items()
        for module in slots.values()
        if isinstance(module, GraphBase) and module.label and "" in slots
    }


def _check_auxiliary_inputs(draft: Draft) -> None:
    for node_id, slots in draft.modules.items():
        for slot, graph in slots.items():
            if not isinstance(graph, GraphBase):
                continue
            takes_refs = slot in {"", "body", "router"}
            bound = {ref.keyword for ref in draft.nodes[node_id].refs} if takes_refs else set()
            unbound = [name for name in graph.input_names[1:] if name not in bound]
            if unbound:
                raise FlowError(
                    f"build: {_place(node_id, slot)} is a graph with inputs "
                    f"{', '.join(map(repr, unbound))} that nothing is given to",
                    hint=f"bind them right after that step: .using({unbound[0]}='tag')"
                    if takes_refs
                    else "experts, branches and conditions get the stream alone",
                )
            if slot and graph.output_names:
                raise FlowError(
                    f"build: {_place(node_id, slot)} is a graph that returns a dictionary of "
                    f"{', '.join(graph.output_names)}; a stream is one value",
                    hint="wrap it in a function that picks one",
                )


def _place(node_id: str, slot: str) -> str:
    return f"{node_id} {slot}" if slot else node_id
