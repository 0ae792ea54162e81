"""What the steps of a graph are, for people and tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.nn.parameter import UninitializedParameter

from flodl.graph.schedule import levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from flodl.graph.ir import Plan


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One step of a graph.

    Attributes:
        id: Unique name.
        op: Construct: ``module``, ``add``, ``merge``, ``input``, ``state_read``, …
        key: Namespace of its modules; empty without modules.
        type: Class name of its module, or ``op``.
        tags: Tags on its outputs.
        level: Length of the longest way to it from an input.
        inputs: Ids of the nodes it reads, references included.
        attrs: What else changes the computation.
        num_params: Parameters of its modules, in elements.
    """

    id: str
    op: str
    key: str
    type: str
    tags: tuple[str, ...]
    level: int
    inputs: tuple[str, ...]
    attrs: dict[str, Any]
    num_params: int


def node_infos(plan: Plan, module_at: Callable[[str], nn.Module]) -> tuple[NodeInfo, ...]:
    """Return what each node of a plan is; ``module_at`` gives the module at a path."""
    level = levels(plan)
    return tuple(
        NodeInfo(
            id=node.id,
            op=node.op,
            key=node.key,
            type=node.type,
            tags=tuple(tag.name for tag in plan.tags if tag.port.node == node.id),
            level=level[node.id],
            inputs=tuple(dict.fromkeys(port.node for port in node.sources())),
            attrs=dict(node.attrs),
            num_params=count_parameters(module_at(slot.path) for slot in node.slots),
        )
        for node in plan.nodes
    )


def count_parameters(modules: Iterable[nn.Module]) -> int:
    """Return the elements of all parameters of modules, shared ones once."""
    parameters = {parameter for module in modules for parameter in module.parameters()}
    return sum(p.numel() for p in parameters if not isinstance(p, UninitializedParameter))
