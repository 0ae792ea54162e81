"""What code of the user takes from outside itself: closures, globals, classes, objects, modules."""

from __future__ import annotations

import argparse
import builtins
import collections
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

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
_FOREIGN = frozenset({"torch", "flodl", "numpy", "builtins", *sys.stdlib_module_names})
_DEEPEST = 3
MOST_ENTRIES = 256
"""Entries of a container that are looked at."""
CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)
NAMESPACES = (
    types.SimpleNamespace,
    argparse.Namespace,
    collections.UserDict,
    collections.UserList,
    collections.ChainMap,
)
"""Objects of Python that hold what the user puts into them."""
_HOLDERS = (*CONTAINERS, *NAMESPACES)
_CONSTRUCTS = {"__init__", "__new__", "__post_init__"}
_CODE = (
    types.FunctionType,
    types.MethodType,
    functools.partial,
    type(functools.cache(lambda: None)),
)
_DYNAMIC = {"getattr", "vars", "__dict__", "asdict", "__getattribute__"}
_CALLED_WITHOUT_NAME = (
    "forward", "backward", "setup_context", "__add__", "__bool__", "__call__", "__contains__",
    "__enter__", "__eq__", "__exit__", "__float__", "__ge__", "__get__", "__getattr__",
    "__getitem__", "__gt__", "__index__", "__int__", "__iter__", "__le__", "__len__", "__lt__",
    "__matmul__", "__missing__", "__mul__", "__neg__", "__next__", "__pow__", "__radd__",
    "__rmul__", "__rsub__", "__rtruediv__", "__sub__", "__torch_function__", "__truediv__",
)  # fmt: skip


class Gone:
    """Stands for an attribute that is not there."""


class Reference(NamedTuple):
    """A variable that code refers to.

    Attributes:
        label: What it is, for messages.
        holder: The cell, or the dictionary of a module or class; ``None`` for a value that cannot
            be exchanged.
        key: Its name there.
        value: What it holds now.
    """

    label: str
    holder: Any
    key: Any
    value: Any


class Outside(NamedTuple):
    """What code of the user takes from outside.

    Attributes:
        references: The variables.
        names: Every name that occurs in the code, of attributes too.
    """

    references: list[Reference]
    names: frozenset[str]


class EveryName(frozenset[str]):
    """Contains every name: for code that reads attributes by names made at run time.

    Those that it is made of are the ones that occur in the code.
    """

    def __contains__(self, name: object) -> bool:
        return True


def outside_of(step_fn: Callable[..., Any], model: nn.Module, hooks: Iterable[Any] = ()) -> Outside:
    """Return what code of the user takes from outside.

    The code is that of the step function, of the model's hooks and ``forward`` methods, and of
    functions and methods that these call by name.

    Args:
        step_fn: The step function.
        model: The model.
        hooks: More functions that are called during a step.
    """
    collector = _Collector()
    collector.add(step_fn, 0)
    for function in [*_functions_of(model), *hooks]:
        collector.add(function, 0)
    for module in model.modules():
        collector.add_class(type(module))
    collector.follow_names()
    names = frozenset(collector.names)
    return Outside(collector.found, EveryName(names) if names & _DYNAMIC else names)


def is_foreign(module_name: str | None) -> bool:
    """Return whether a module is no code of the user: of torch, flodl, or Python itself."""
    return (module_name or "").partition(".")[0] in _FOREIGN


def user_classes(kind: type) -> list[type]:
    """Return a class and its bases, as far as they are the user's."""
    return [base for base in kind.__mro__ if not is_foreign(base.__module__)]


def _functions_of(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        own = vars(module)
        yield from (value for value in own.values() if isinstance(value, types.FunctionType))
        for name in MODULE_DICTS[3:]:
            yield from own[name].values()
        for parameter in module.parameters(False):
            yield from (parameter._backward_hooks or {}).values()  # noqa: SLF001 - no public question
            yield from (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()


def _code_of(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        if isinstance(value, types.FunctionType):
            yield name, value
        elif isinstance(value, staticmethod | classmethod):
            yield name, value.__func__
        elif isinstance(value, property) and value.fget is not None:
            yield name, value.fget


class _Collector:
    """Goes through functions, and gathers what they refer to."""

    def __init__(self) -> None:
        self.found: list[Reference] = []
        self.names = set(_CALLED_WITHOUT_NAME)
        self._seen: set[int] = set()
        self._read: set[tuple[int, str]] = set()
        self._classes: dict[type, None] = {}
        self._constructed: set[type] = set()
        self._objects: dict[int, Any] = {}

    def add(self, function: Any, depth: int) -> None:
        """Go through a function, or through what is called like one."""
        if id(function) in self._seen or depth > _DEEPEST:
            return
        self._seen.add(id(function))
        title = _title_of(function)
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType | type):
            self._note(f"the object of {title}", None, None, owner)
        for attribute in ("__func__", "func", "__wrapped__"):
            if callable(getattr(function, attribute, None)):
                self.add(getattr(function, attribute), depth)
        for index, item in enumerate(getattr(function, "args", ())):
            self._note(f"argument {index} of {title}", None, None, item)
        keywords = getattr(function, "keywords", None)
        if isinstance(keywords, dict):
            self._note(f"the keywords of {title}", None, None, keywords)
        for registered in registered_with(function):
            self.add(registered, depth)
        if isinstance(function, types.FunctionType):
            self.found.append(Reference(title, None, None, function))
            self._add_code(function, title, depth)
        elif not isinstance(function, type | types.MethodType | types.BuiltinFunctionType):
            self._note(f"the object {type(function).__name__}", None, None, function)

    def add_class(self, kind: type) -> None:
        """Take methods of a class into account, when code calls them."""
        for base in user_classes(kind):
            self._classes[base] = None

    def follow_names(self) -> None:
        """Go through the methods that are called by name, and those that they call."""
        while True:
            known = len(self._seen), len(self._objects), len(self._constructed)
            for kind in list(self._classes):
                constructs = _CONSTRUCTS if kind in self._constructed else set[str]()
                for name, function in _code_of(kind):
                    if name in self.names or name in constructs:
                        self.add(function, 1)
                for name in self.names & vars(kind).keys():
                    self._enter(vars(kind)[name])
            for value in list(self._objects.values()):
                for part in _parts_of(value, self.names):
                    self._enter(part)
            if (len(self._seen), len(self._objects), len(self._constructed)) == known:
                return

    def _enter(self, value: Any) -> None:
        """Take into account what is inside an object that code reaches."""
        if isinstance(value, _CODE):
            self.add(value, 1)
        elif isinstance(value, type):
            self._constructed.update(user_classes(value))
            self.add_class(value)
            self.add_class(type(value))
        elif isinstance(value, _HOLDERS) or not is_foreign(type(value).__module__):
            self._objects[id(value)] = value
            self.add_class(type(value))

    def _add_code(self, function: types.FunctionType, title: str, depth: int) -> None:
        if is_foreign(function.__module__):
            return
        code, variables = function.__code__, function.__globals__
        names = list(_names(code))
        self.names.update(names)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._refer(f"{name!r} of {title}", cell, "cell_contents", depth)
        for name in names:
            if name in variables:
                self._refer(f"the global {name!r} of {title}", variables, name, depth)
                if isinstance(variables[name], types.ModuleType):
                    self._add_module(variables[name], names, depth)
            elif hasattr(builtins, name):  # a variable of this name would hide it
                self.found.append(Reference(f"the global {name!r}", variables, name, Gone))
                self.found.append(Reference(f"Python's {name!r}", vars(builtins), name, None))
            for module in _imported(name, variables):
                self._add_module(module, names, depth)
        if "import_module" in names:
            for text in filter(_is_text, code.co_consts):
                named = sys.modules.get(text)
                if named is not None and not is_foreign(text):
                    self._add_module(named, names, depth)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for index, value in enumerate(defaults):
            self._note(f"default {index} of {title}", None, None, value)

    def _add_module(self, module: types.ModuleType, names: list[str], depth: int) -> None:
        """Note what the code may read of a module."""
        held = vars(module)
        fresh = [n for n in names if n in held and (id(module), n) not in self._read]
        self._read.update((id(module), name) for name in fresh)
        for name in fresh:
            label, value = f"{module.__name__}.{name}", held[name]
            if isinstance(value, types.ModuleType):
                self._add_module(value, names, depth)
            elif is_foreign(module.__name__):
                self.found.append(Reference(label, held, name, None))
            else:
                self._refer(label, held, name, depth + 1)

    def _refer(self, label: str, holder: Any, key: Any, depth: int) -> None:
        value = current(holder, key)
        self._note(label, holder, key, value)
        if isinstance(value, _CODE):
            self.add(value, depth + 1)

    def _note(self, label: str, holder: Any, key: Any, value: Any) -> None:
        self.found.append(Reference(label, holder, key, value))
        if not isinstance(value, types.ModuleType | types.FunctionType | types.MethodType):
            self._enter(value)


def registered_with(function: Any) -> tuple[Any, ...]:
    """Return the functions that ``functools.singledispatch`` chooses from, if it is by that."""
    registry = getattr(function, "registry", None)
    return tuple(registry.values()) if isinstance(registry, types.MappingProxyType) else ()


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _parts_of(value: Any, names: set[str]) -> list[Any]:
    """Return what code reaches inside a value by one of these names, or by an index."""
    if isinstance(value, dict):
        return list(value.values())[:MOST_ENTRIES]
    if isinstance(value, CONTAINERS):
        return list(itertools.islice(value, MOST_ENTRIES))
    own = getattr(value, "__dict__", {})
    if isinstance(value, NAMESPACES):
        return list(own.values())[:MOST_ENTRIES]
    slots = [key for kind in type(value).__mro__ for key in slots_of(kind)]
    found = [own[key] for key in own if key in names]
    return found + [getattr(value, key) for key in slots if key in names and hasattr(value, key)]


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of a class's slots."""
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from filter(str.isidentifier, code.co_names)  # asserts that pytest rewrote have others
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _imported(name: str, variables: dict[str, Any]) -> list[types.ModuleType]:
    """Return the modules of the user that code may mean that imports by this name."""
    package = variables.get("__package__") or ""
    known = [sys.modules.get(full) for full in (name, f"{package}.{name}")]
    return [module for module in known if module is not None and not is_foreign(module.__name__)]


def outside_modules(references: Iterable[Reference]) -> list[nn.Module]:
    """Return modules among the variables or inside objects that they hold: a teacher for instance.

    Each comes with the modules inside it.
    """
    roots: list[nn.Module] = []
    for _, _, _, value in references:
        if isinstance(value, nn.Module):
            roots.append(value)
        elif isinstance(value, list | tuple):
            roots += [item for item in value if isinstance(item, nn.Module)]
        elif isinstance(value, dict):
            roots += [item for item in value.values() if isinstance(item, nn.Module)]
        elif not is_foreign(type(value).__module__) and not isinstance(value, type):
            own = getattr(value, "__dict__", {})
            roots += [item for item in own.values() if isinstance(item, nn.Module)]
    return [module for root in roots for module in root.modules()]


def _title_of(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return str(name).replace("<locals>.", "")


def entries_of(holder: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    """Return entries of a dictionary; ``Gone`` for one that it does not have."""
    return tuple([holder.get(key, Gone) for key in keys])


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
