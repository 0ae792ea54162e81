"""What a step changes in Python, where a replay would not."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from flodl.engine.inside import watch_inside, watch_references
from flodl.engine.outside import OWN_NAMES, Gone, Outside, outside_of, user_classes
from flodl.engine.watch import Watch, is_same
from flodl.graph.base import GraphBase

_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
MOST_ENTRIES = 1 << 14
_DEEPEST = 3


class SideEffects:
    """Compares the Python state around one step: what did the step itself change?

    Args:
        step_fn: The step function.
        model: The model.
        device: Where tensors are written by replays.
        hooks: More functions that are called during the step.
    """

    def __init__(
        self,
        step_fn: Callable[..., Any],
        model: nn.Module,
        device: torch.device,
        hooks: Iterable[Any] = (),
    ) -> None:
        self._device_type = device.type
        self._model = model
        self._step_fn, self._hooks = step_fn, tuple(hooks)
        self._kept: dict[str, Tensor] = {}
        self._before = self._take(keep=True)
        self._watch = self._watched()

    def _watched(self) -> Watch:
        """Watch what a capture relies on; a step that changes it would have to run each time."""
        watch, (references, names) = Watch(), self._outside()
        watch_references(watch, references, names)
        kinds = dict.fromkeys(type(module) for module in self._model.modules())
        for base in dict.fromkeys(base for kind in kinds for base in user_classes(kind)):
            watch_inside(watch, f"the class {base.__name__}", base, names, set(), 1)
        watch.begin()
        return watch

    def found(self, read: set[int] | None) -> str | None:
        """Return what the step changed, if a replay would not.

        Args:
            read: Addresses of the storages that the step read from outside, ``None`` where that
                is not known. A tensor that was replaced without having been read is an
                observation, which replays renew.
        """
        after = self._take(keep=False)
        for label in dict.fromkeys([*self._before, *after]):
            old, new = self._before.get(label, Gone), after.get(label, Gone)
            if old == new:
                continue
            tensor = self._kept.get(label)
            if tensor is not None and isinstance(new, tuple) and new[0] == "gpu":
                if read is None or tensor.untyped_storage().data_ptr() in read:
                    return f"{label}, a tensor that the next step reads"
                continue
            return label
        return self._watch.differs(_same_or_tensors)

    def _take(self, *, keep: bool) -> dict[str, Any]:
        leaves: dict[str, Any] = {}
        seen: set[int] = set()
        for name, module in self._model.named_modules():
            owner = f"model.{name}" if name else "model"
            entries = {} if isinstance(module, GraphBase) else _attributes(module)
            for key, value in {**entries, **module._buffers, **module._parameters}.items():  # noqa: SLF001 - rebinding shows there only
                self._leaf(f"{owner}.{key}", value, leaves, seen, 0, keep=keep)
        for label, _, _, value in self._outside().references:
            self._leaf(label, value, leaves, seen, 0, keep=keep)
        return leaves

    def _outside(self) -> Outside:
        return outside_of(self._step_fn, self._model, self._hooks)

    def _leaf(
        self,
        label: str,
        value: Any,
        leaves: dict[str, Any],
        seen: set[int],
        depth: int,
        *,
        keep: bool,
    ) -> None:
        if isinstance(value, _PLAIN):
            leaves[label] = (type(value).__name__, value)
        elif isinstance(value, Tensor):
            on_gpu = value.device.type == self._device_type
            place = (id(value), _place(value))
            leaves[label] = ("gpu", *place) if on_gpu else ("cpu", *place, _version(value))
            if keep:
                self._kept[label] = value
        elif id(value) not in seen:
            # kept alive by their owners for as long as the walk lasts
            seen.add(id(value))
            for name, item in _parts(value, depth):
                self._leaf(f"{label}{name}", item, leaves, seen, depth + 1, keep=keep)


def _same_or_tensors(one: Any, other: Any) -> bool:
    return is_same(one, other) or (isinstance(one, Tensor) and isinstance(other, Tensor))


def _parts(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield ".len()", len(value)
        if depth < _DEEPEST:
            for index, (key, item) in enumerate(list(value.items())[:MOST_ENTRIES]):
                named = repr(key) if isinstance(key, _PLAIN) else f"key {index}"
                yield f"[{named}]", item
    elif isinstance(value, list | tuple | set | frozenset):
        yield ".len()", len(value)
        if depth < _DEEPEST and not isinstance(value, set | frozenset):
            for index, item in enumerate(value[:MOST_ENTRIES]):
                yield f"[{index}]", item
    elif type(value).__name__ in ("deque", "count"):
        yield "", repr(value)[:1000]
    elif isinstance(value, nn.Module | type | types.ModuleType | types.FunctionType):
        return
    elif depth < _DEEPEST and type(value).__module__.split(".")[0] not in ("torch", "flodl"):
        for key, item in list(getattr(value, "__dict__", {}).items())[:MOST_ENTRIES]:
            yield f".{key}", item


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(module).items() if key not in OWN_NAMES}


def _version(tensor: Tensor) -> int:
    return tensor._version  # noqa: SLF001 - torch has no public name


def _place(tensor: Tensor) -> int:
    try:
        return tensor.data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0
