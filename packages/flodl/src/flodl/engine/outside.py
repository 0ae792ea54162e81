"""What code of the user takes from outside itself: closures, globals, objects, modules."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

MODULE_DICTS = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
"""Dictionaries of every module whose entries belong to what it computes."""
OWN_NAMES = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that torch keeps for itself."""
_FOREIGN = ("torch.", "flodl.", "numpy.", "builtins")
_DEEPEST = 3


class Gone:
    """Stands for an attribute that is not there."""


def outside_variables(
    step_fn: Callable[..., Any], model: nn.Module
) -> list[tuple[str, Any, Any, Any]]:
    """Return what code of the user takes from outside: label, holder, key, value.

    Closures, globals and attributes that the step function, the modules' own ``forward`` and
    hooks, and functions that these call, refer to.
    """
    found: list[tuple[str, Any, Any, Any]] = []
    seen: set[int] = set()
    for function in _functions(step_fn, model):
        _collect(function, found, seen, 0)
    return found


def _functions(step_fn: Callable[..., Any], model: nn.Module) -> Iterator[Any]:
    yield step_fn
    kinds: set[type] = set()
    for module in model.modules():
        kind = type(module)
        if kind not in kinds and not kind.__module__.startswith(_FOREIGN):
            kinds.add(kind)
            yield from (f for f in vars(kind).values() if isinstance(f, types.FunctionType))
        for name in MODULE_DICTS[3:]:
            yield from vars(module)[name].values()
        for parameter in module.parameters(False):
            yield from (parameter._backward_hooks or {}).values()  # noqa: SLF001 - as above
            yield from (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()


def _collect(
    function: Any, found: list[tuple[str, Any, Any, Any]], seen: set[int], depth: int
) -> None:
    if id(function) in seen or depth > _DEEPEST:
        return
    seen.add(id(function))
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, nn.Module | types.ModuleType | type):
        found.append((f"the object of {_title_of(function)}", None, None, owner))
    for attribute in ("__func__", "func", "__wrapped__"):
        if callable(getattr(function, attribute, None)):
            _collect(getattr(function, attribute), found, seen, depth)
    for index, item in enumerate(getattr(function, "args", ())):
        found.append((f"argument {index} of {_title_of(function)}", None, None, item))
    if not isinstance(function, types.FunctionType):
        if not isinstance(function, nn.Module | type | types.MethodType | types.BuiltinMethodType):
            found.append((f"the object {type(function).__name__}", None, None, function))
            call = vars(type(function)).get("__call__")
            if isinstance(call, types.FunctionType):
                _collect(call, found, seen, depth + 1)
        return
    if (function.__module__ or "").startswith(_FOREIGN):
        return
    for label, holder, key, value in _references(function):
        if isinstance(value, types.FunctionType | types.MethodType):
            _collect(value, found, seen, depth + 1)
        elif not isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
            found.append((label, holder, key, value))


def _references(function: types.FunctionType) -> Iterator[tuple[str, Any, Any, Any]]:
    code, place = function.__code__, _title_of(function)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        value = current(cell, "cell_contents")
        yield f"{name!r} of {place}", cell, "cell_contents", value
    for name in _names(code):
        if name in function.__globals__:
            yield (
                f"the global {name!r} of {place}",
                function.__globals__,
                name,
                function.__globals__[name],
            )
    defaults = list(function.__defaults__ or ()) + list((function.__kwdefaults__ or {}).values())
    for index, value in enumerate(defaults):
        yield f"default {index} of {place}", None, None, value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def outside_modules(step_fn: Callable[..., Any]) -> list[nn.Module]:
    """Return modules that the step function takes from outside, a teacher for instance."""
    found: list[tuple[str, Any, Any, Any]] = []
    _collect(step_fn, found, set(), 0)
    roots = [value for _, _, _, value in found if isinstance(value, nn.Module)]
    return [module for root in roots for module in root.modules()]


def _title_of(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return str(name).replace("<locals>.", "")


def current(holder: Any, key: Any) -> Any:
    """Return what a variable holds now; ``Gone`` when there is nothing."""
    if isinstance(holder, dict):
        return holder.get(key, Gone)
    if holder is None:
        return None
    try:
        return getattr(holder, key)
    except ValueError:  # a cell that nothing was put in yet
        return Gone
