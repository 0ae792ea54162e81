"""What an optimizer may be built from: parameters, named pairs, modules, groups of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

Parameters = nn.Module | Tensor | Iterable[Tensor] | Iterable[tuple[str, Tensor]]
"""A module, one tensor, tensors, or ``(name, tensor)`` pairs; modules bring their own names."""
ParameterGroups = Parameters | Iterable[Mapping[str, Any]]
"""The same, or groups: maps with ``params`` and the settings that differ from the defaults."""


def as_groups(source: ParameterGroups) -> list[dict[str, Any]]:
    """Return parameter groups as torch takes them; no parameters give one empty group.

    Raises:
        ValueError: A parameter stands in two groups; the message names it.
    """
    if isinstance(source, nn.Module | Tensor):
        groups = [{"params": as_list(source)}]
    else:
        items = list(source)
        if items and all(isinstance(item, Mapping) for item in items):
            groups = [{**item, "params": as_list(item["params"])} for item in items]
        else:
            groups = [{"params": items}]
    _check_disjoint(groups)
    return groups


def as_list(source: Parameters) -> list[Any]:
    """Return tensors or ``(name, tensor)`` pairs."""
    if isinstance(source, nn.Module):
        return list(source.named_parameters())
    return [source] if isinstance(source, Tensor) else list(source)


def _check_disjoint(groups: list[dict[str, Any]]) -> None:
    owner: dict[Tensor, tuple[int, str | None]] = {}
    for index, group in enumerate(groups):
        for position, item in enumerate(group["params"]):
            name, tensor = item if isinstance(item, tuple) else (None, item)
            if not isinstance(tensor, Tensor):
                continue
            first, other_name = owner.setdefault(tensor, (index, name))
            if first != index:
                known = name or other_name
                described = repr(known) if known else f"{position} of shape {tuple(tensor.shape)}"
                raise ValueError(
                    f"parameter {described} of group {index} is in group {first} as well; "
                    "each parameter belongs to one group"
                )


def display_names(optimizer: Any) -> list[tuple[str, ...]]:
    """Return the names of the parameters of each group, or their positions where there are none."""
    names, position = [], 0
    for group in optimizer.param_groups:
        count = len(group["params"])
        numbers = tuple(str(position + offset) for offset in range(count))
        names.append(tuple(group["param_names"]) if group.get("param_names") else numbers)
        position += count
    return names
