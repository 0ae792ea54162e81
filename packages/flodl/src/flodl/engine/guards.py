"""What a captured graph relies on, and noticing when it was changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from flodl.engine.inside import watch_inside, watch_references
from flodl.engine.inspection import storage_address
from flodl.engine.observation import Observation
from flodl.engine.outside import (
    MODULE_DICTS,
    OWN_NAMES,
    EveryName,
    is_foreign,
    outside_modules,
    outside_of,
    user_classes,
)
from flodl.engine.switches import torch_settings
from flodl.engine.watch import Watch
from flodl.graph.base import GraphBase

_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
_backward_hooks = attrgetter("_backward_hooks")
_gradient_hooks = attrgetter("_post_accumulate_grad_hooks")
_requires_grad = attrgetter("requires_grad")
_dtype = attrgetter("dtype")


class CapturedState:
    """Remembers what a capture took for granted; :meth:`changed` compares in microseconds.

    Parameters and buffers by place, ``requires_grad``, attributes and hooks of modules, settings
    and state of the optimizer, switches of torch, and the variables that the step function and
    the modules' own code take from outside.

    Args:
        step_fn: The step function.
        model: The model.
        optimizer: The optimizer; its learning rates are tensors.
        scaler: The gradient scaler, if there is one.
        watches_groups: Whether the optimizer's step is part of a capture.
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
        code = code_of_optimizer(optimizer) if watches_groups else []
        outside = outside_of(step_fn, model, code)
        self._names = {id(module): name for name, module in model.named_modules()}
        self._free = {(id(item.holder), item.key) for item in observed}
        self._watch = Watch()
        self._empty: list[dict[Any, Any]] = []
        self._empty_titles: list[str] = []
        watch_references(self._watch, outside.references, outside.names)
        modules = list(dict.fromkeys([*model.modules(), *outside_modules(outside.references)]))
        self._watch_modules(modules, outside.names)
        self._watch_optimizer(optimizer, groups=watches_groups)
        if scaler is not None:
            keys = [key for key in vars(scaler) if key != "_per_optimizer_states"]
            self._watch.entries("the gradient scaler", vars(scaler), keys)
        self._watch.equal("a switch of torch", torch_settings)
        self._watch.begin()
        self._watch_tensors(modules)

    def _watch_modules(self, modules: list[nn.Module], names: frozenset[str]) -> None:
        watch, seen = self._watch, set[int]()
        for module in modules:  # grows by those that are found in attributes
            title, own = self._title(module), vars(module)
            if not isinstance(module, GraphBase):
                keys = [k for k in own if k not in OWN_NAMES and (id(own), k) not in self._free]
                watch.entries(f"an attribute of {title}", own, keys)
                for key in keys:
                    watch_inside(watch, f"{key!r} of {title}", own[key], EveryName(names), seen, 1)
            for name in MODULE_DICTS:
                self._watch_dict(f"{name.strip('_')} of {title}", own[name])
            met = [inner for found in watch.modules for inner in found.modules()]
            modules.extend(dict.fromkeys(inner for inner in met if inner not in modules))
            watch.modules.clear()
        for kind in dict.fromkeys(type(module) for module in modules):
            title = f"the class {kind.__name__}"
            watch.values(title, partial(_forward_of, kind))
            for base in user_classes(kind):
                watch_inside(watch, f"the class {base.__name__}", base, names, seen, 1)
        if modules:
            watch.values(
                "the class of a module", lambda: tuple([module.__class__ for module in modules])
            )
        for name in _GLOBAL_HOOKS:
            self._watch_dict("hooks of all modules", getattr(torch_module, name))
        graphs = [module for module in modules if isinstance(module, GraphBase)]
        if graphs:
            # each by its own: the version of a graph asks all graphs inside it, which are here too
            watch.equal("a graph", lambda: [x for g in graphs for x in (g.own_version, g.training)])

    def _watch_dict(self, title: str, held: dict[Any, Any]) -> None:
        keys = [key for key in held if (id(held), key) not in self._free]
        if not held:
            self._empty.append(held)
            self._empty_titles.append(title)
        elif len(keys) < len(held) and all(isinstance(key, str) for key in keys):
            self._watch.entries(title, held, keys)
        else:
            self._watch.all_of(title, held)

    def _watch_optimizer(self, optimizer: torch.optim.Optimizer, *, groups: bool) -> None:
        watch = self._watch
        watch.values("the optimizer's groups", lambda: (optimizer.param_groups,))
        watch.items("the optimizer's groups", optimizer.param_groups)
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            self._watch_dict("hooks of the optimizer", getattr(optimizer, name))
        for index, group in enumerate(optimizer.param_groups):
            watch.items(f"parameters of the optimizer's group {index}", group["params"])
            if groups:
                watch.all_of(f"a setting of the optimizer's group {index}", group)
                watch.tensors += [value for value in group.values() if isinstance(value, Tensor)]
        if groups:
            watch.values("the optimizer's method step", lambda: _step_of(optimizer))
            state = optimizer.state
            watch.values("the optimizer's state", lambda: (optimizer.state,))
            for values in state.values():
                watch.all_of("the optimizer's state", values)
                watch.tensors += [value for value in values.values() if isinstance(value, Tensor)]

    def _watch_tensors(self, modules: Iterable[nn.Module]) -> None:
        tensors = [t for m in modules for t in (*m.parameters(False), *m.buffers(False))]
        self._tensors = list({id(tensor): tensor for tensor in tensors}.values())
        others = {id(tensor): tensor for tensor in self._watch.tensors if _has_place(tensor)}
        self._others = [t for key, t in others.items() if key not in {*map(id, self._tensors)}]
        # a graph may be launched before a change is found: what it reads must still be there
        self._storages = [t.untyped_storage() for t in (*self._tensors, *self._others)]
        self._saved_tensors = self._tensor_state()
        self._saved_hooks = [dict(hooks) if hooks else None for hooks in self._hooks()]

    def _title(self, module: nn.Module) -> str:
        name = self._names.get(id(module))
        kind = type(module).__name__
        return f"module {name!r} ({kind})" if name else f"the module {kind}"

    def _tensor_state(self) -> list[list[Any]]:
        tensors = self._tensors
        return [
            list(map(Tensor.data_ptr, tensors)),
            list(map(Tensor.stride, tensors)),
            list(map(_requires_grad, tensors)),
            list(map(Tensor.size, tensors)),
            list(map(_dtype, tensors)),
            list(map(Tensor.data_ptr, self._others)),
        ]

    def _hooks(self) -> list[Any]:
        tensors = self._tensors
        return [*map(_backward_hooks, tensors), *map(_gradient_hooks, tensors)]

    def changed(self) -> str | None:
        """Return what was changed since the capture, or ``None``."""
        change = self._watch.changed()
        if change is not None:
            return change
        if any(self._empty):
            return next(
                f"{title}: one was added"
                for title, held in zip(self._empty_titles, self._empty, strict=True)
                if held
            )
        state = self._tensor_state()
        if state != self._saved_tensors:
            return _tensor_change(self._saved_tensors, state)
        if [hooks or None for hooks in self._hooks()] != self._saved_hooks:
            return "a hook was added to a parameter or removed from it"
        return None


def _forward_of(kind: type[nn.Module]) -> tuple[Any, ...]:
    return (kind.forward,)


def _tensor_change(before: list[list[Any]], now: list[list[Any]]) -> str:
    if before[2] != now[2]:
        return "a parameter was frozen or thawed"
    if before[5] != now[5]:
        return "a tensor that the step uses has other memory"
    return "a parameter or buffer has other memory or another form"


def _has_place(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and storage_address(tensor) != 0


def _step_of(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """Return the method, of the object if it has its own; schedules of torch only count calls."""
    own = vars(optimizer).get("step")
    counts = getattr(own, "_wrapped_by_lr_sched", False)
    return (None if counts else own, type(optimizer).step)


def code_of_optimizer(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return the user's code in the optimizer's step: the method itself, and hooks around it."""
    hooks = [
        hook
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
        for hook in getattr(optimizer, name).values()
        if not is_foreign(getattr(hook, "__module__", None))
    ]
    return [*hooks, *([optimizer.step] if user_classes(type(optimizer)) else [])]
