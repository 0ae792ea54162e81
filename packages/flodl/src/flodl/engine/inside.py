"""What can change inside the values that a step uses."""

from __future__ import annotations

import array
import contextvars
import inspect
import operator
import os
import threading
import types
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from flodl.engine.outside import (
    CONTAINERS,
    NAMESPACES,
    EveryName,
    Gone,
    Reference,
    entries_of,
    is_foreign,
    registered_with,
    slots_of,
    user_classes,
)
from flodl.engine.watch import PLAIN, Watch

_DEEPEST = 8
_MOST_ENTRIES = 1 << 14
_COMPARED_BYTES = 1 << 16
_HASHED_BYTES = 1 << 24
_IMMUTABLE = (
    torch.device,
    torch.dtype,
    torch.layout,
    torch.memory_format,
    types.ModuleType,
)


def watch_references(watch: Watch, references: Iterable[Reference], names: frozenset[str]) -> None:
    """Watch variables and what is inside them.

    Args:
        watch: Where to.
        references: The variables.
        names: Names that occur in the code; of objects, only attributes of these are watched.
    """
    seen: set[int] = set()
    dicts: dict[int, tuple[dict[str, Any], dict[str, str]]] = {}
    for label, holder, key, value in references:
        if isinstance(holder, dict):
            dicts.setdefault(id(holder), (holder, {}))[1][key] = label
        elif holder is not None:
            watch.variable(label, holder, key)
        watch_inside(watch, label, value, names, seen, 0)
    for variables, labels in dicts.values():
        watch.variables("", variables, list(labels), list(labels.values()))
    if names & {"environ", "environb", "getenv"}:
        watch.all_of("the environment", os.environ._data)  # type: ignore[attr-defined] # noqa: SLF001 - a copy of it would cost too much


def watch_inside(
    watch: Watch, label: str, value: Any, names: frozenset[str], seen: set[int], depth: int
) -> None:
    """Watch what can change inside a value."""
    if depth > _DEEPEST or isinstance(value, PLAIN) or id(value) in seen:
        return
    seen.add(id(value))  # kept alive by its owner, which is watched
    if isinstance(value, Tensor):
        watch.tensors.append(value)
    elif isinstance(value, nn.Module):
        watch.modules.append(value)
    elif not isinstance(value, _IMMUTABLE):
        for part in _watched_parts(watch, f"the contents of {label}", value, names):
            watch_inside(watch, label, part, names, seen, depth + 1)


def _watched_parts(watch: Watch, title: str, value: Any, names: frozenset[str]) -> Iterator[Any]:
    if isinstance(value, CONTAINERS):
        yield from _watched_container(watch, title, value)
    elif _is_array(value):
        _watch_array(watch, title, value)
    elif isinstance(value, contextvars.ContextVar):
        watch.values(title, lambda: (value.get(Gone),))
        yield value.get(Gone)
    elif isinstance(value, Iterator):
        watch.values(title, partial(_position, value))
    elif isinstance(value, type):
        if not is_foreign(value.__module__):
            watch.values(
                f"the bases of {title.removeprefix('the contents of ')}", partial(_bases, value)
            )
        for kind in (*user_classes(value), *user_classes(type(value))):
            yield from _watched_entries(watch, title, vars(kind), (), names)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
        yield value.__self__  # of ``counter.__next__`` or ``values.get``
    elif isinstance(value, types.FunctionType):
        yield from _watched_function(watch, title, value, names)
    else:
        yield from _watched_object(watch, title, value, names)


def _watched_container(watch: Watch, title: str, value: Any) -> list[Any]:
    if isinstance(value, set | frozenset):
        watch.equal(title, lambda: (frozenset(value),))
        return []
    if isinstance(value, tuple):
        return _compound(value[:_MOST_ENTRIES])
    if len(value) > _MOST_ENTRIES:
        return []
    if isinstance(value, dict):
        watch.all_of(title, value)
        return _compound(value.values())
    watch.items(title, value)
    return _compound(value)


def _watched_function(
    watch: Watch, title: str, value: types.FunctionType, names: frozenset[str]
) -> Iterator[Any]:
    if is_foreign(value.__module__):
        return
    watch.functions.append(value)
    if registered_with(value):
        watch.values(title, partial(registered_with, value))
    yield from _watched_entries(watch, title, vars(value), (), names)
    yield from _compound([*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()])


def _compound(values: Iterable[Any]) -> list[Any]:
    return [value for value in list(values) if not isinstance(value, PLAIN)]


def _watched_object(watch: Watch, title: str, value: Any, names: frozenset[str]) -> Iterator[Any]:
    kind, own = type(value), getattr(value, "__dict__", {})
    if isinstance(value, NAMESPACES):
        yield from _watched_entries(watch, title, own, (), own.keys())
    elif isinstance(value, threading.local) or not is_foreign(kind.__module__):
        of_class = [key for base in user_classes(kind) for key in vars(base)]
        yield from _watched_entries(watch, title, own, of_class, _reached(kind, names))
        yield from _watched_slots(watch, title, value, names)
        yield kind
    elif kind.__module__.startswith("numpy.random"):
        watch.equal(title, partial(_numpy_position, value))
    elif isinstance(value, torch.Generator):
        if value.device.type == "cpu":  # those of a GPU go on with each replay
            watch.equal(title, lambda: (zlib.crc32(value.get_state().numpy().tobytes()),))
    else:
        yield from _watched_foreign(watch, title, value, names)


def _watched_entries(
    watch: Watch, title: str, holder: Any, more: Iterable[str], names: Any
) -> Iterator[Any]:
    """Watch the entries of these names, and those of ``more`` that may yet be added."""
    keys = [key for key in dict.fromkeys([*holder, *more]) if key in names]
    keys = [key for key in keys if not key.startswith("__") or key in holder]
    if keys:
        watch.variables(title, holder, keys)
        yield from _compound(entries_of(holder, keys))


def _watched_slots(watch: Watch, title: str, value: Any, names: frozenset[str]) -> Iterator[Any]:
    slots = [key for kind in type(value).__mro__ for key in slots_of(kind) if key in names]
    if slots:
        watch.values(title, partial(_attributes, value, slots), slots)
        yield from _compound(_attributes(value, slots))


def _watched_foreign(watch: Watch, title: str, value: Any, names: frozenset[str]) -> Iterator[Any]:
    """Watch plain attributes of an object of torch, flodl or Python that code of the user names.

    Those that its own methods of such names read count as named: ``get_last_lr`` of a schedule
    reads ``_last_lr``.
    """
    own, kind = getattr(value, "__dict__", {}), type(value)
    wanted = _reached(kind, names)
    keys = [key for key in own if key in wanted]
    keys += [k for k in wanted - {*keys} if inspect.isdatadescriptor(getattr(kind, k, None))]
    keys = [key for key in sorted(keys) if isinstance(_attribute(value, key), PLAIN)]
    if keys:
        watch.values(title, partial(_attributes, value, keys), keys)
    yield from [own[k] for k in own if k in wanted and isinstance(own[k], dict | list | tuple)]


def _reached(kind: type, names: frozenset[str]) -> frozenset[str]:
    """Return names, and those read by methods and properties of these names that are Python's.

    Or torch's: that code is not gone through, unlike the user's.
    """
    if isinstance(names, EveryName):
        return names
    foreign = [base for base in kind.__mro__ if is_foreign(base.__module__)]
    held = [vars(base)[name] for base in foreign for name in names & vars(base).keys()]
    code = [getattr(getattr(item, "fget", item), "__code__", None) for item in held]
    return names.union(name for item in code if item is not None for name in item.co_names)


def _bases(kind: type) -> tuple[Any, ...]:
    return (kind.__mro__,)


def _attributes(value: Any, keys: Iterable[str]) -> tuple[Any, ...]:
    return tuple([_attribute(value, key) for key in keys])


def _attribute(value: Any, key: str) -> Any:
    try:
        return getattr(value, key, Gone)
    except Exception:  # noqa: BLE001 - a property of somebody else's; that it raises is its value
        return Gone


def _is_array(value: Any) -> bool:
    of_numpy = type(value).__module__ == "numpy" and hasattr(value, "tobytes")
    return of_numpy or isinstance(value, array.array | bytearray)


def _watch_array(watch: Watch, title: str, value: Any) -> None:
    size = value.nbytes if hasattr(value, "nbytes") else memoryview(value).nbytes
    if size <= _COMPARED_BYTES:
        watch.equal(title, lambda: (bytes(value) if size == 0 else memoryview(value).tobytes(),))
    elif size <= _HASHED_BYTES:
        watch.equal(title, lambda: (zlib.crc32(memoryview(value).tobytes()),))


def _numpy_position(value: Any) -> tuple[Any, ...]:
    bits = getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", value)
    state = getattr(bits, "state", None)
    return (zlib.crc32(repr(state).encode()),)


def _position(value: Iterator[Any]) -> tuple[Any, ...]:
    """Return where an iterator is: another object each time for one that does not tell."""
    if type(value).__name__ == "count":
        return (repr(value),)
    left = operator.length_hint(value, -1)
    return (left if left >= 0 else object(),)
