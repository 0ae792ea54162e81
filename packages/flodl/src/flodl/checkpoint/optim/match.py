"""Putting the state of a file into an optimizer: everything is checked before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flodl.checkpoint.load import LoadReport
from flodl.checkpoint.optim.image import OptimizerImage, ParameterImage, kind_of
from flodl.core.errors import StateFileError, StateMismatchError
from flodl.optim.implementation import HOST_STATE, IMPLEMENTATION_FLAGS
from flodl.optim.parameters import display_names

_CROSS_LOADABLE = frozenset({"Adam", "AdamW"})


@dataclass(frozen=True, slots=True)
class _Target:
    """One parameter of the optimizer, its name and its group."""

    name: str
    parameter: Tensor
    group: dict[str, Any]


def load_image(
    image: OptimizerImage,
    optimizer: torch.optim.Optimizer,
    *,
    strict: bool,
    cast: bool,
    name: str,
) -> LoadReport:
    """Make an optimizer go on where the saved one was.

    Raises:
        StateMismatchError: The file belongs to another class or to other parameters.
        StateFileError: A setting in the file has a value it cannot have.
    """
    _check_kind(image, optimizer, strict=strict, name=name)
    targets = _targets(optimizer)
    sources = _matched(image, optimizer, targets)
    pairs = [(target, sources[target.name]) for target in targets if target.name in sources]
    missing = [target.name for target in targets if target.name not in sources]
    used = {id(source) for _, source in pairs}
    skipped = [
        label
        for label, parameter in zip(image.names(), image.parameters, strict=True)
        if id(parameter) not in used
    ]
    _check_shapes(pairs, name)
    if strict:
        _check_complete(image, optimizer, skipped, missing, name)
    settings = _settings(image, optimizer, name)
    states, changed = _states(pairs, cast=cast)
    _assign(optimizer, settings, states)
    return LoadReport(
        loaded=tuple(target.name for target, _ in pairs),
        skipped=tuple(skipped),
        missing=tuple(missing),
        cast=tuple(changed),
        hash_checked=False,
        path=name,
    )


def _check_kind(
    image: OptimizerImage, optimizer: torch.optim.Optimizer, *, strict: bool, name: str
) -> None:
    own = kind_of(optimizer)
    if image.kind == own or (not strict and {image.kind, own} == _CROSS_LOADABLE):
        return
    hint = f"build {image.kind}, which the file was saved from"
    if {image.kind, own} == _CROSS_LOADABLE:
        hint += "; or take it over with strict=False"
    raise StateMismatchError(
        name, None, "wrong class", f"it is the state of {image.kind}, not of {own}", hint=hint
    )


def _targets(optimizer: torch.optim.Optimizer) -> list[_Target]:
    return [
        _Target(label, parameter, group)
        for labels, group in zip(display_names(optimizer), optimizer.param_groups, strict=True)
        for label, parameter in zip(labels, group["params"], strict=True)
    ]


def _matched(
    image: OptimizerImage, optimizer: torch.optim.Optimizer, targets: list[_Target]
) -> dict[str, ParameterImage]:
    """Return the saved parameter of each target: by name where both sides have names."""
    here = all(group.get("param_names") or not group["params"] for group in optimizer.param_groups)
    there = all(parameter.name is not None for parameter in image.parameters)
    labels = [target.name for target in targets]
    if here and there and len(set(labels)) == len(labels):
        return dict(zip(image.names(), image.parameters, strict=True))
    ordered = [image.parameters[member] for group in image.groups for member in group.members]
    return dict(zip(labels, ordered, strict=False))


def _check_shapes(pairs: Iterable[tuple[_Target, ParameterImage]], name: str) -> None:
    problems = [
        f"{target.name}: {list(source.shape)} in the file, {list(target.parameter.shape)} here"
        for target, source in pairs
        if source.shape is not None and source.shape != tuple(target.parameter.shape)
    ]
    if problems:
        raise StateMismatchError(
            name, None, "shape mismatch", "\n  ".join(["", *problems]), hint="build the same model"
        )


def _check_complete(
    image: OptimizerImage,
    optimizer: torch.optim.Optimizer,
    skipped: list[str],
    missing: list[str],
    name: str,
) -> None:
    hint = "build the same optimizer, or load what fits with strict=False"
    if skipped or missing:
        raise StateMismatchError(
            name,
            None,
            "other parameters",
            f"only here: {', '.join(missing) or 'none'}; "
            f"only in the file: {', '.join(skipped) or 'none'}",
            hint=hint,
        )
    if len(image.groups) != len(optimizer.param_groups):
        raise StateMismatchError(
            name,
            None,
            "other groups",
            f"{len(image.groups)} in the file, {len(optimizer.param_groups)} here",
            hint=hint,
        )


def _settings(
    image: OptimizerImage, optimizer: torch.optim.Optimizer, name: str
) -> list[dict[str, Any]]:
    """Return the new settings of each group."""
    result = []
    for saved, group in zip(image.groups, optimizer.param_groups, strict=False):
        new = {}
        for key, value in saved.settings.items():
            if key in IMPLEMENTATION_FLAGS or key == "params":
                continue
            # This one makes the difference between Adam and AdamW.
            if key == "decoupled_weight_decay" and image.kind != kind_of(optimizer):
                continue
            new[key] = _fitting(key, value, group.get(key, value), name)
        result.append(new)
    return result


def _fitting(key: str, value: Any, own: Any, name: str) -> Any:
    """Return a saved setting in the form that the optimizer has it in."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(own, Tensor):
        fits = number
    elif isinstance(own, bool):
        fits = isinstance(value, bool)
    elif isinstance(own, int | float):
        fits = number
    elif isinstance(own, tuple | list):
        fits = isinstance(value, tuple | list) and len(value) == len(own)
        if fits:
            items = [
                _fitting(key, part, other, name) for part, other in zip(value, own, strict=True)
            ]
            return type(own)(items)
    else:
        fits = True
    if not fits:
        raise StateFileError(name, None, "damaged state", f"{key} is {value!r:.60}, here {own!r}")
    return value


def _states(
    pairs: Iterable[tuple[_Target, ParameterImage]], *, cast: bool
) -> tuple[list[tuple[Tensor, dict[str, Any]]], list[str]]:
    """Return the new state of each parameter, on its device, and whose dtype was converted."""
    states, changed = [], []
    for target, source in pairs:
        place = _placement(target)
        wanted = target.parameter.dtype if cast and target.parameter.is_floating_point() else None
        state = {key: _placed(value, key, place, wanted) for key, value in source.state.items()}
        if any(
            isinstance(value, Tensor) and value.dtype != state[key].dtype and key not in HOST_STATE
            for key, value in source.state.items()
        ):
            changed.append(target.name)
        states.append((target.parameter, state))
    return states, changed


def _placement(target: _Target) -> Callable[[str], torch.device]:
    on_device = bool(target.group.get("fused") or target.group.get("capturable"))
    own = target.parameter.device
    return lambda key: own if on_device or key not in HOST_STATE else torch.device("cpu")


def _placed(
    value: Any, key: str, place: Callable[[str], torch.device], wanted: torch.dtype | None
) -> Any:
    if isinstance(value, list):
        return [_placed(item, key, place, wanted) for item in value]
    if not isinstance(value, Tensor):
        return value
    casts = wanted is not None and value.is_floating_point() and key not in HOST_STATE
    return value.to(place(key), wanted if casts else value.dtype)


def _assign(
    optimizer: torch.optim.Optimizer,
    settings: list[dict[str, Any]],
    states: list[tuple[Tensor, dict[str, Any]]],
) -> None:
    with torch.no_grad():
        for group, new in zip(optimizer.param_groups, settings, strict=False):
            for key, value in new.items():
                _set(group, key, value)
        for parameter, state in states:
            if not state:
                optimizer.state.pop(parameter, None)
                continue
            own = optimizer.state[parameter]
            for key in own.keys() - state.keys():
                del own[key]
            for key, value in state.items():
                _set(own, key, value)


def _set(owner: dict[str, Any], key: str, value: Any) -> None:
    """Write into a tensor that is there, so that captured graphs see it, else put the value."""
    own = owner.get(key)
    if isinstance(own, Tensor) and isinstance(value, int | float):
        own.fill_(value)
    elif (
        isinstance(own, Tensor)
        and isinstance(value, Tensor)
        and (own.shape, own.dtype, own.device) == (value.shape, value.dtype, value.device)
    ):
        own.copy_(value)
    else:
        owner[key] = value
