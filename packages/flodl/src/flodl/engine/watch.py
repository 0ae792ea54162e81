"""Many Python values compared with what they were, by identity and in microseconds."""

from __future__ import annotations

import argparse
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import is_, itemgetter
from typing import Any

from torch import Tensor, nn

from flodl.engine.outside import (
    MOST_ENTRIES,
    Gone,
    Reference,
    current,
    is_foreign,
    slots_of,
    user_classes,
)

_DEEPEST = 4
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LARGEST_ARRAY_BYTES = 4096

Reader = Callable[[], Sequence[Any]]


class Watch:
    """Values that must stay what they are.

    Numbers and strings may be exchanged for equal ones of the same type; everything else counts
    as another value when it is another object.
    """

    def __init__(self) -> None:
        self._titles: dict[str, list[str]] = {
            "entries": [],
            "dicts": [],
            "lists": [],
            "read": [],
            "equal": [],
        }
        self._holders: list[dict[str, Any]] = []
        self._keys: list[Sequence[str]] = []
        self._gets: list[Callable[[dict[str, Any]], tuple[Any, ...]]] = []
        self._dicts: list[dict[Any, Any]] = []
        self._lists: list[list[Any] | deque[Any]] = []
        self._readers: list[Reader] = []
        self._plain_readers: list[Reader] = []
        self._saved: list[list[Any]] | None = None
        self._saved_parts: list[tuple[str, list[tuple[Any, ...]]]] = []

    def entries(self, title: str, holder: dict[str, Any], keys: Sequence[str]) -> None:
        """Watch some entries of a dictionary, and how many it has."""
        self._titles["entries"].append(title)
        self._holders.append(holder)
        self._keys.append(keys)
        # with two keys or more it gives a tuple
        self._gets.append(itemgetter(*keys, *keys[:1]) if keys else _nothing)

    def all_of(self, title: str, holder: dict[Any, Any]) -> None:
        """Watch all entries of a dictionary."""
        self._titles["dicts"].append(title)
        self._dicts.append(holder)

    def items(self, title: str, holder: list[Any] | deque[Any]) -> None:
        """Watch the items of a list."""
        self._titles["lists"].append(title)
        self._lists.append(holder)

    def variable(self, title: str, holder: Any, key: Any) -> None:
        """Watch one variable."""
        self.values(title, lambda: (current(holder, key),))

    def values(self, title: str, read: Reader) -> None:
        """Watch what a function returns."""
        self._titles["read"].append(title)
        self._readers.append(read)

    def equal(self, title: str, read: Reader) -> None:
        """Watch plain values that a function returns, each time as other objects."""
        self._titles["equal"].append(title)
        self._plain_readers.append(read)

    def begin(self) -> None:
        """Remember the present values; nothing may be added afterwards."""
        self._saved, self._saved_parts = self._now(), self._parts()

    def _now(self) -> list[list[Any]]:
        flat = chain.from_iterable
        return [
            [
                *map(len, self._holders),
                *map(len, self._dicts),
                *map(len, self._lists),
                *flat([read() for read in self._plain_readers]),
            ],
            list(
                flat([get(holder) for get, holder in zip(self._gets, self._holders, strict=True)])
            ),
            list(flat(self._dicts)),
            list(flat(map(dict.values, self._dicts))),
            list(flat(self._lists)),
            list(flat([read() for read in self._readers])),
        ]

    def _parts(self) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Return the same values part by part, with titles."""
        found: list[tuple[str, list[tuple[Any, ...]]]] = []
        for title, holder, keys in zip(
            self._titles["entries"], self._holders, self._keys, strict=True
        ):
            values = [(key, holder.get(key, Gone)) for key in keys]
            found.append((title, [*values, ("one was added or removed", len(holder))]))
        for title, held in zip(self._titles["dicts"], self._dicts, strict=True):
            found.append((title, list(held.items())))
        for title, items in zip(self._titles["lists"], self._lists, strict=True):
            found.append((title, [("", item) for item in items]))
        for title, read in zip(self._titles["read"], self._readers, strict=True):
            found.append((title, [("", value) for value in read()]))
        for title, read in zip(self._titles["equal"], self._plain_readers, strict=True):
            found.append((title, [("", value) for value in read()]))
        return found

    def changed(self) -> str | None:
        """Return what was changed since ``begin``, ``None`` when nothing was."""
        assert self._saved is not None
        try:
            now = self._now()
        except KeyError:
            return self._describe()
        except RuntimeError:  # its size changed while it was looked at
            return "a container that another thread writes to"
        plain, *others = self._saved
        if now[0] == plain and all(
            len(new) == len(old) and all(map(is_, new, old))
            for new, old in zip(now[1:], others, strict=True)
        ):
            return None
        change = self._describe()
        if change is None:
            self._saved = now  # equal values in other objects: the next look is quick again
        return change

    def _describe(self) -> str | None:
        for (title, now), (_, saved) in zip(self._parts(), self._saved_parts, strict=True):
            for (key, value), (old_key, old) in zip(now, saved, strict=False):
                if key != old_key:
                    return f"{title}: one was added or removed"
                if not is_same(value, old):
                    return f"{title}: {key}" if key != "" else title
            if len(now) != len(saved):
                return f"{title}: one was added or removed"
        return None


def _nothing(_holder: dict[str, Any]) -> tuple[Any, ...]:
    return ()


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are one object, or equal numbers or strings of one type."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, _PLAIN):
        return bool(one == other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return False


def watch_references(watch: Watch, references: Iterable[Reference], names: frozenset[str]) -> None:
    """Watch variables and what is inside them.

    Args:
        watch: Where to.
        references: The variables.
        names: Names that occur in the code; of objects, only attributes of these are watched.
    """
    seen: set[int] = set()
    for label, holder, key, value in references:
        if holder is not None:
            watch.variable(label, holder, key)
        watch_inside(watch, label, value, names, seen, 0)


def watch_inside(
    watch: Watch, label: str, value: Any, names: frozenset[str], seen: set[int], depth: int
) -> None:
    """Watch what can change inside a value."""
    if depth > _DEEPEST or isinstance(value, (*_PLAIN, Tensor, nn.Module)) or id(value) in seen:
        return
    seen.add(id(value))  # kept alive by its owner, which is watched
    title = f"the contents of {label}"
    for part in _watched_parts(watch, title, value, names):
        watch_inside(watch, label, part, names, seen, depth + 1)


def _watched_parts(watch: Watch, title: str, value: Any, names: frozenset[str]) -> Iterator[Any]:
    if isinstance(value, dict):
        if len(value) <= MOST_ENTRIES:
            watch.all_of(title, value)
            yield from list(value.values())
    elif isinstance(value, list | deque):
        if len(value) <= MOST_ENTRIES:
            watch.items(title, value)
            yield from list(value)
    elif isinstance(value, tuple):
        yield from value[:MOST_ENTRIES]
    elif isinstance(value, set | frozenset):
        watch.equal(title, lambda: (tuple(sorted(map(repr, value))),))
    elif _is_array(value):
        if value.nbytes <= _LARGEST_ARRAY_BYTES:
            watch.equal(title, lambda: (value.tobytes(),))
    elif isinstance(value, type):
        for kind in user_classes(value):
            yield from _watched_attributes(watch, title, vars(kind), names)
    elif isinstance(value, types.ModuleType | types.FunctionType | types.MethodType):
        return
    elif _has_attributes_of_the_user(value):
        yield from _watched_attributes(watch, title, getattr(value, "__dict__", {}), names)
        yield from _watched_slots(watch, title, value, names)
        yield type(value)


def _watched_attributes(
    watch: Watch, title: str, holder: Any, names: frozenset[str]
) -> Iterator[Any]:
    for key in [key for key in holder if key in names]:
        watch.values(f"{title}: {key}", partial(_entry, holder, key))
        yield holder[key]


def _watched_slots(watch: Watch, title: str, value: Any, names: frozenset[str]) -> Iterator[Any]:
    slots = [
        key
        for kind in type(value).__mro__
        for key in slots_of(kind)
        if key in names and hasattr(value, key)
    ]
    for key in slots:
        watch.values(f"{title}: {key}", partial(_slot, value, key))
        yield getattr(value, key)


def _entry(holder: Any, key: str) -> tuple[Any, ...]:
    return (holder.get(key, Gone),)


def _slot(holder: Any, key: str) -> tuple[Any, ...]:
    return (getattr(holder, key, Gone),)


def _has_attributes_of_the_user(value: Any) -> bool:
    namespace = isinstance(value, types.SimpleNamespace | argparse.Namespace)
    return namespace or not is_foreign(type(value).__module__)


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")
