"""Many Python values compared with what they were, by identity and in microseconds."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

from torch import Tensor, nn

from flodl.engine.outside import Gone, current, entries_of

PLAIN = (int, float, complex, str, bytes, bool, type(None))
"""Types whose values may be exchanged for equal ones."""
_code = attrgetter("__code__", "__defaults__", "__kwdefaults__")

Reader = Callable[[], Sequence[Any]]


class Watch:
    """Values that must stay what they are.

    Numbers and strings may be exchanged for equal ones of the same type; everything else counts
    as another value when it is another object.
    """

    def __init__(self) -> None:
        self._titles: dict[str, list[str]] = {
            "entries": [],
            "variables": [],
            "dicts": [],
            "lists": [],
            "read": [],
            "equal": [],
        }
        self._holders: list[dict[str, Any]] = []
        self._keys: list[Sequence[str]] = []
        self._gets: list[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = []
        self._spaces: list[Mapping[str, Any]] = []
        self._labelled: list[list[tuple[str, str]]] = []
        self._space_gets: list[Callable[[Mapping[str, Any]], tuple[Any, ...]]] = []
        self._dicts: list[dict[Any, Any]] = []
        self._lists: list[list[Any] | deque[Any]] = []
        self._readers: list[Reader] = []
        self._keys_read: list[Sequence[str]] = []
        self._plain_readers: list[Reader] = []
        self._saved: list[list[Any]] | None = None
        self._saved_parts: list[tuple[str, list[tuple[Any, ...]]]] = []
        self.tensors: list[Tensor] = []
        """Tensors that were met; their memory is for others to watch."""
        self.modules: list[nn.Module] = []
        """Modules that were met, likewise."""
        self.functions: list[types.FunctionType] = []
        """Functions whose code and defaults must stay."""

    def entries(self, title: str, holder: dict[str, Any], keys: Sequence[str]) -> None:
        """Watch some entries of a dictionary, and how many it has."""
        self._titles["entries"].append(title)
        self._holders.append(holder)
        self._keys.append(keys)
        self._gets.append(_getter(keys))

    def all_of(self, title: str, holder: dict[Any, Any]) -> None:
        """Watch all entries of a dictionary."""
        self._titles["dicts"].append(title)
        self._dicts.append(holder)

    def items(self, title: str, holder: list[Any] | deque[Any]) -> None:
        """Watch the items of a list."""
        self._titles["lists"].append(title)
        self._lists.append(holder)

    def variables(
        self,
        title: str,
        holder: Mapping[str, Any],
        keys: Sequence[str],
        labels: Sequence[str] = (),
    ) -> None:
        """Watch some of many variables in a dictionary, which it may lack; labels name them."""
        labelled = list(zip(keys, labels or keys, strict=True))
        held = [each for each in labelled if each[0] in holder]
        lacking = [each for each in labelled if each[0] not in holder]
        if held:
            self._titles["variables"].append(title)
            self._spaces.append(holder)
            self._labelled.append(held)
            self._space_gets.append(_getter([key for key, _ in held]))
        if lacking:
            read = partial(entries_of, holder, [key for key, _ in lacking])
            self.values(title, read, [label for _, label in lacking])

    def variable(self, title: str, holder: Any, key: Any) -> None:
        """Watch one variable."""
        self.values(title, lambda: (current(holder, key),))

    def values(self, title: str, read: Reader, keys: Sequence[str] = ()) -> None:
        """Watch what a function returns; ``keys`` name the values, as far as they have names."""
        self._titles["read"].append(title)
        self._readers.append(read)
        self._keys_read.append(keys)

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
            list(
                flat([get(each) for get, each in zip(self._space_gets, self._spaces, strict=True)])
            ),
            list(flat(self._dicts)),
            list(flat(map(dict.values, self._dicts))),
            list(flat(self._lists)),
            list(flat([read() for read in self._readers])),
            list(flat(map(_code, self.functions))),
        ]

    def _parts(self) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Return the same values part by part, with titles."""
        found: list[tuple[str, list[tuple[Any, ...]]]] = []
        for title, holder, keys in zip(
            self._titles["entries"], self._holders, self._keys, strict=True
        ):
            values = [(key, holder.get(key, Gone)) for key in keys]
            found.append((title, [*values, ("one was added or removed", len(holder))]))
        for title, space, labelled in zip(
            self._titles["variables"], self._spaces, self._labelled, strict=True
        ):
            found.append((title, [(label, space.get(key, Gone)) for key, label in labelled]))
        for title, held in zip(self._titles["dicts"], self._dicts, strict=True):
            found.append((title, list(held.items())))
        for title, items in zip(self._titles["lists"], self._lists, strict=True):
            found.append((title, [("", item) for item in items]))
        for title, read, keys in zip(
            self._titles["read"], self._readers, self._keys_read, strict=True
        ):
            read_now = read()
            named = keys or [""] * len(read_now)
            found.append((title, list(zip(named, read_now, strict=True))))
        for title, read in zip(self._titles["equal"], self._plain_readers, strict=True):
            found.append((title, [("", value) for value in read()]))
        found += [
            (f"the function {function.__qualname__}", [("", value) for value in _code(function)])
            for function in self.functions
        ]
        return found

    def changed(self) -> str | None:
        """Return what was changed since ``begin``, ``None`` when nothing was."""
        assert self._saved is not None
        try:
            now = self._now()
        except KeyError:
            return self.differs()
        except RuntimeError:  # its size changed while it was looked at
            return "a container that another thread writes to"
        plain, *others = self._saved
        if now[0] == plain and all(
            len(new) == len(old) and all(map(is_, new, old))
            for new, old in zip(now[1:], others, strict=True)
        ):
            return None
        change = self.differs()
        if change is None:
            self._saved = now  # equal values in other objects: the next look is quick again
        return change

    def differs(self, are_same: Callable[[Any, Any], bool] | None = None) -> str | None:
        """Return the first value that is another one than at first, by a comparison of one's own.

        It takes longer than ``changed``.
        """
        are_same = are_same or is_same
        for (title, now), (_, saved) in zip(self._parts(), self._saved_parts, strict=True):
            for (key, value), (old_key, old) in zip(now, saved, strict=False):
                if not is_same(key, old_key) and (isinstance(key, Tensor) or key != old_key):
                    return f"{title}: one was added or removed"
                if not are_same(value, old):
                    return ": ".join(part for part in (title, str(key)) if part)
            if len(now) != len(saved):
                return f"{title}: one was added or removed"
        return None


def _getter(keys: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    # with two keys or more it gives a tuple
    return itemgetter(*keys, *keys[:1]) if keys else _nothing


def _nothing(_holder: Mapping[str, Any]) -> tuple[Any, ...]:
    return ()


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are one object, or equal numbers or strings of one type."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (*PLAIN, frozenset)):
        return bool(one == other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return False
