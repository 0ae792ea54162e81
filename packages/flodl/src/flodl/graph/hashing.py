"""The structural hash: equal for two graphs that compute the same function of their parameters.

What counts: operations with their attributes, wiring, names of inputs, outputs and tags, classes
and parameter shapes of modules. What does not: keys, labels, ids, dtypes, devices, values.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from torch.nn.parameter import is_lazy

from flodl.nn.protocols import HasStructuralHash

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from flodl.graph.ir import Node, Plan, Port

HASH_VERSION = 1


def structural_hash(plan: Plan, module_at: Callable[[str], nn.Module]) -> str:
    """Return 64 hex digits; ``module_at`` gives the module at a path."""
    text = json.dumps(
        structure(plan, module_at), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def structure(plan: Plan, module_at: Callable[[str], nn.Module]) -> dict[str, Any]:
    """Return what the hash is taken over, as JSON values."""
    index = {node.id: position for position, node in enumerate(plan.nodes)}

    def place(port: Port) -> list[int]:
        return [index[port.node], port.index]

    seen: dict[str, int] = {}
    return {
        "version": HASH_VERSION,
        "inputs": list(plan.inputs),
        "outputs": [[name, *place(port)] for name, port in plan.outputs],
        "nodes": [
            {
                "op": node.op,
                "attrs": dict(node.attrs),
                "inputs": [place(port) for port in node.inputs],
                "refs": [[ref.keyword, *place(ref.port)] for ref in node.refs],
                "modules": _modules(node, module_at, seen),
            }
            for node in plan.nodes
        ],
        "tags": {tag.name: place(tag.port) for tag in plan.tags},
        "groups": {name: list(members) for name, members in plan.groups},
        "cells": [
            [cell.name, *place(cell.writer), cell.start, list(cell.shape)] for cell in plan.cells
        ],
    }


def _modules(
    node: Node, module_at: Callable[[str], nn.Module], seen: dict[str, int]
) -> list[list[Any]]:
    result: list[list[Any]] = []
    for slot in node.slots:
        if slot.path in seen:
            # A module used twice: sharing weights is structure, the path is not.
            result.append([slot.name, seen[slot.path]])
        else:
            seen[slot.path] = len(seen)
            result.append([slot.name, describe(module_at(slot.path))])
    return result


def describe(module: nn.Module) -> dict[str, Any]:
    """Return class names, tensor shapes and declared attributes of a module, recursively."""
    if isinstance(module, HasStructuralHash):
        return {"graph": module.structural_hash}
    declared = getattr(module, "flodl_attrs", None)
    tensors = {
        **dict(module.named_parameters(recurse=False, remove_duplicate=False)),
        **dict(module.named_buffers(recurse=False, remove_duplicate=False)),
    }
    return {
        "class": type(module).__name__,
        "attrs": {} if declared is None else dict(declared()),
        "tensors": {name: _shape(tensor) for name, tensor in tensors.items()},
        "children": [[name, describe(child)] for name, child in module.named_children()],
    }


def _shape(tensor: Tensor) -> list[int] | None:
    return None if is_lazy(tensor) else list(tensor.shape)
