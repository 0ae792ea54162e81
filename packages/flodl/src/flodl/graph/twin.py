"""Twins: module trees that share all parameters and buffers, but carry their own state."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from flodl.graph.base import GraphBase
from flodl.graph.memory import Memory

M = TypeVar("M", bound=nn.Module)


def twin_of(module: M) -> M:
    """Return a copy of the modules without a copy of any tensor, and with no state yet.

    Calling it changes nothing of the original besides its buffers.
    """
    return _twin(module, {})


def meta_twin_of(module: M) -> M:
    """Return a copy of the modules whose parameters and buffers have shapes only."""
    twin = _twin(module, {})
    moved: dict[int, torch.Tensor] = {}
    for part in twin.modules():
        for kind in ("_parameters", "_buffers"):
            tensors = part.__dict__[kind]
            part.__dict__[kind] = {
                name: None if tensor is None else moved.setdefault(id(tensor), _outline(tensor))
                for name, tensor in tensors.items()
            }
        if isinstance(part, GraphBase):
            part.__dict__["_starts"] = {
                name: _outlined_start(start) for name, start in part.flodl_starts.items()
            }
    return twin


def _outlined_start(start: Any) -> Any:
    if isinstance(start, torch.Tensor):
        return start.to("meta")
    # A function may well return a tensor that it holds.
    return lambda stream: start(stream).to("meta")


def _outline(tensor: torch.Tensor) -> torch.Tensor:
    outline = tensor.detach().to("meta")
    return nn.Parameter(outline, False) if isinstance(tensor, nn.Parameter) else outline


def _twin(module: M, made: dict[int, nn.Module]) -> M:
    if id(module) not in made:
        twin = object.__new__(type(module))
        made[id(module)] = twin
        twin.__dict__.update(module.__dict__)
        twin.__dict__["_modules"] = {
            name: None if child is None else _twin(child, made)
            for name, child in module._modules.items()  # noqa: SLF001 - as torch's own replicas do
        }
        if isinstance(twin, GraphBase):
            twin.flodl_memory = Memory(len(twin.flodl_plan.cells))
            twin.flodl_sums = twin.flodl_sums.fresh()
    return made[id(module)]  # type: ignore[return-value] # the twin of an M is an M
