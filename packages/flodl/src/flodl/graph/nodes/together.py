"""Modules that are alike, called as one: their parameters side by side, one product for all."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from flodl.core.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

_OF_TORCH = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def together(modules: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Return what each module makes of ``x``, stacked along a new first dimension.

    The first one's code runs once for all of them (``torch.func.vmap``), on stacked parameters;
    gradients reach each module's own.
    """
    names = [name for name, _ in modules[0].named_parameters()]
    every = [dict(module.named_parameters()) for module in modules]
    stacked = {name: torch.stack([own[name] for own in every]) for name in names}

    def one(parameters: Mapping[str, Tensor]) -> Any:
        return functional_call(modules[0], dict(parameters), (x,))

    out: Tensor = vmap(one, randomness="different")(stacked)
    return out


def check_alike(title: str, modules: Mapping[str, nn.Module]) -> None:
    """Raise unless the modules differ in the values of their parameters alone.

    Args:
        title: What error messages begin with.
        modules: The modules, by name.

    Raises:
        FlowError: Two differ in anything else; or one keeps buffers, or has hooks, which one call
            for all of them would not serve.
    """
    (first_name, first), *others = modules.items()
    for name, module in modules.items():
        _check_plain(title, name, module)
    for name, module in others:
        pairs = zip_longest(first.named_modules(), module.named_modules())
        for (path, ours), (other_path, theirs) in (
            (a or ("", None), b or ("", None)) for a, b in pairs
        ):
            difference = (
                "modules of other names" if path != other_path else _difference(ours, theirs)
            )
            if difference is not None:
                at = ".".join(part for part in (name, other_path or path) if part)
                raise FlowError(
                    f"{title}: {at} is not like its twin in {first_name}: {difference}",
                    hint="leave batched out, or build all of them in the same way",
                )


def _check_plain(title: str, name: str, module: nn.Module) -> None:
    for path, part in module.named_modules():
        at = ".".join(p for p in (name, path) if p)
        found = (
            "keeps buffers"
            if any(True for _ in part.buffers(recurse=False))
            else "has hooks"
            if any(getattr(part, hooks) for hooks in _HOOKS)
            else "keeps state between calls"
            if getattr(part, "flodl_stateful", False) or hasattr(part, "flodl_memory")
            else None
        )
        if found is not None:
            raise FlowError(
                f"{title}: {at} ({type(part).__name__}) {found}, which one call for all of them "
                "would not serve",
                hint="leave batched out",
            )


def _difference(ours: nn.Module | None, theirs: nn.Module | None) -> str | None:
    if type(ours) is not type(theirs) or ours is None or theirs is None:
        return f"{type(theirs).__name__}, not {type(ours).__name__}"
    shapes, other = (
        {name: (tuple(p.shape), p.dtype) for name, p in part.named_parameters(recurse=False)}
        for part in (ours, theirs)
    )
    if shapes != other:
        return f"parameters {_listed(other)}, not {_listed(shapes)}"
    settings, others = (
        {name: value for name, value in vars(part).items() if name not in _OF_TORCH}
        for part in (ours, theirs)
    )
    for name in settings.keys() | others.keys():
        mine, their = settings.get(name), others.get(name)
        if mine is not their and (isinstance(mine, torch.Tensor) or mine != their):
            return f"{name}={their!r}, not {mine!r}"
    return None


def _listed(shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, (shape, _) in shapes.items()) or "none"
