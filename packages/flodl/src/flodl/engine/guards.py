"""What a captured graph relies on, and noticing when it was changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from flodl.engine.observation import Observation
from flodl.engine.outside import (
    MODULE_DICTS,
    OWN_NAMES,
    Gone,
    current,
    outside_modules,
    outside_variables,
)
from flodl.graph.base import GraphBase

MOST_ENTRIES = 64


class CapturedState:
    """Remembers what a capture took for granted; :meth:`changed` compares in microseconds.

    Parameters and buffers by place, ``requires_grad``, attributes and hooks of modules, settings
    of the optimizer's groups, and the variables that the step function and the modules' own code
    take from outside.

    Args:
        step_fn: The step function.
        model: The model.
        optimizer: The optimizer; its learning rates are tensors.
        scaler: The gradient scaler, if there is one.
        watches_groups: Whether the optimizer's settings are part of a capture.
        observed: Attributes that the step itself sets anew, for others to look at.
    """

    def __init__(
        self,
        step_fn: Callable[..., Any],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        *,
        watches_groups: bool,
        observed: Sequence[Observation] = (),
    ) -> None:
        modules = [*model.modules(), *outside_modules(step_fn)]
        self._names = {id(module): name for name, module in model.named_modules()}
        self._graphs = [module for module in modules if isinstance(module, GraphBase)]
        free = {(id(item.holder), item.key) for item in observed}
        self._attributes: list[_Attributes] = []
        self._holders: list[Any] = []
        self._labels: list[str] = []
        for module in modules:
            title, own = self._title(module), vars(module)
            if not isinstance(module, GraphBase):
                keys = [key for key in own if key not in OWN_NAMES and (id(own), key) not in free]
                self._attributes.append(_Attributes(f"an attribute of {title}", own, keys))
            for name in MODULE_DICTS:
                label, held = f"{name.strip('_')} of {title}", own[name]
                if any((id(held), key) in free for key in held):
                    keys = [key for key in held if (id(held), key) not in free]
                    self._attributes.append(_Attributes(label, held, keys))
                else:
                    self._holders.append(held)
                    self._labels.append(label)
        groups = optimizer.param_groups if watches_groups else []
        self._holders += groups
        self._labels += [f"a setting of the optimizer's group {i}" for i in range(len(groups))]
        self._optimizer = optimizer
        self._outside = [
            (label, holder, key)
            for label, holder, key, _ in outside_variables(step_fn, model)
            if not isinstance(holder, nn.Module)
        ]
        if scaler is not None:
            self._outside += [
                (f"{key} of the gradient scaler", vars(scaler), key)
                for key in vars(scaler)
                if key != "_per_optimizer_states"
            ]
        self._containers = list(_containers(outside_variables(step_fn, model)))
        tensors = [t for m in modules for t in (*m.parameters(False), *m.buffers(False))]
        self._tensors = tensors
        self._pointers = [tensor.data_ptr for tensor in tensors]
        self._read = [(item.get, item.holder) for item in self._attributes]
        self._saved_attributes = self._attribute_values()
        self._saved_holders = [dict(holder) for holder in self._holders]
        self._saved_outside = self._values()
        self._saved_containers = [_copied(value) for _, value in self._containers]
        self._saved_pointers = self._places()
        self._saved_grad = [tensor.requires_grad for tensor in tensors]
        self._saved_graphs = self._graph_state()
        self._saved_hooks = [hooks and dict(hooks) for hooks in self._tensor_hooks()]
        self._groups = len(optimizer.param_groups)

    def _title(self, module: nn.Module) -> str:
        name = self._names.get(id(module))
        kind = type(module).__name__
        return f"module {name!r} ({kind})" if name else f"the module {kind}"

    def _values(self) -> list[Any]:
        return [current(holder, key) for _, holder, key in self._outside]

    def _places(self) -> list[int]:
        return [pointer() for pointer in self._pointers]

    def _graph_state(self) -> list[tuple[int, bool]]:
        return [(graph.version, graph.training) for graph in self._graphs]

    def _attribute_values(self) -> list[Any]:
        return [(len(holder), get(holder)) for get, holder in self._read]

    def _tensor_hooks(self) -> list[Any]:
        tensors = self._tensors
        hooks: list[Any] = [t._backward_hooks for t in tensors]  # noqa: SLF001 - no public question
        return hooks + [t._post_accumulate_grad_hooks for t in tensors]  # noqa: SLF001 - as above

    def changed(self) -> str | None:
        """Return what was changed since the capture, or ``None``."""
        try:
            same = (
                self._attribute_values() == self._saved_attributes
                and self._holders == self._saved_holders
                and len(self._optimizer.param_groups) == self._groups
                and self._values() == self._saved_outside
                and [value for _, value in self._containers] == self._saved_containers
            )
        except (RuntimeError, ValueError, TypeError, KeyError):
            same = False  # what cannot be compared was replaced
        if not same:
            return self._describe()
        if self._places() != self._saved_pointers:
            return "a parameter or buffer has other memory"
        if [tensor.requires_grad for tensor in self._tensors] != self._saved_grad:
            return "a parameter was frozen or thawed"
        if self._graph_state() != self._saved_graphs:
            return "a graph was changed"
        if self._tensor_hooks() != self._saved_hooks:
            return "a hook was added to a parameter or removed from it"
        return None

    def _describe(self) -> str:
        for item, (count, saved_values) in zip(
            self._attributes, self._saved_attributes, strict=True
        ):
            values = [item.holder.get(key, Gone) for key in item.keys]
            for key, now, was in zip(item.keys, values, item.listed(saved_values), strict=True):
                if not _equal(now, was):
                    return f"{item.label}: {key}"
            if len(item.holder) != count:
                return f"{item.label}: one was added"
        for label, holder, saved in zip(
            self._labels, self._holders, self._saved_holders, strict=True
        ):
            for key in holder.keys() | saved.keys():
                if not _equal(holder.get(key, Gone), saved.get(key, Gone)):
                    return f"{label}: {key}"
        for (label, _, _), now, saved in zip(
            self._outside, self._values(), self._saved_outside, strict=True
        ):
            if not _equal(now, saved):
                return label
        for (label, now), saved in zip(self._containers, self._saved_containers, strict=True):
            if not _equal(now, saved):
                return f"the contents of {label}"
        return "the optimizer's groups"


class _Attributes:
    """Some entries of one module's dictionary, read all at once.

    Args:
        label: What they are, for messages.
        holder: The dictionary.
        keys: The entries.
    """

    def __init__(self, label: str, holder: dict[str, Any], keys: list[str]) -> None:
        self.label = label
        self.holder = holder
        self.keys = keys
        self.get: Callable[[dict[str, Any]], Any] = itemgetter(*keys) if keys else len

    def listed(self, values: Any) -> list[Any]:
        """Return what ``get`` gave, one item for each key."""
        if len(self.keys) > 1:
            return list(values)
        return [values] if self.keys else []


def _containers(found: list[tuple[str, Any, Any, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the small dictionaries and lists among the variables, objects as their attributes."""
    for label, _, _, value in found:
        foreign = type(value).__module__.split(".")[0] in ("torch", "flodl")
        inside = value if foreign or isinstance(value, dict | list) else _vars(value)
        if isinstance(inside, dict | list) and len(inside) <= MOST_ENTRIES:
            yield label, inside


def _vars(value: Any) -> Any:
    return None if isinstance(value, nn.Module) else getattr(value, "__dict__", None)


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else list(value)


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return False
    try:
        return bool(one == other)
    except (RuntimeError, ValueError, TypeError):
        return False
