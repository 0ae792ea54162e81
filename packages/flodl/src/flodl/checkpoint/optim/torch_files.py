"""Optimizer states that torch wrote, read without running any code in them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

from flodl.checkpoint.optim.image import GroupImage, OptimizerImage, ParameterImage, settings_of
from flodl.core.errors import StateFileError

# Settings by which a class is known; AdamW and Adam differ in one value.
_SIGNATURES = (
    ("NAdam", {"momentum_decay"}),
    ("RMSprop", {"alpha", "centered"}),
    ("Adagrad", {"lr_decay", "initial_accumulator_value"}),
    ("SGD", {"dampening", "nesterov"}),
)


def read_torch_file(file: BinaryIO, kind: str | None, name: str) -> OptimizerImage:
    """Return the image of what ``torch.save(optimizer.state_dict(), ...)`` wrote.

    Raises:
        StateFileError: It is no such file, holds more than plain values and tensors, or does not
            tell its class and ``kind`` was not given.
    """
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise StateFileError(
            name,
            None,
            "unsafe or damaged torch file",
            str(error).splitlines()[0],
            hint="only plain values and tensors are read; save optimizer.state_dict() again",
        ) from error
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= state.keys():
        raise StateFileError(
            name,
            None,
            "not an optimizer state",
            "it has no 'state' and 'param_groups'",
            hint="save optimizer.state_dict() alone",
        )
    groups = [dict(group) for group in state["param_groups"]]
    kind = kind or _kind_of(groups)
    if kind is None:
        raise StateFileError(
            name, None, "unknown class", "the settings do not tell it", hint="pass optimizer="
        )
    return _image(kind, groups, state["state"])


def _kind_of(groups: list[dict[str, Any]]) -> str | None:
    keys = set().union(*groups)
    for kind, signature in _SIGNATURES:
        if signature <= keys:
            return kind
    if "amsgrad" in keys and "decoupled_weight_decay" in keys:
        return "AdamW" if any(group["decoupled_weight_decay"] for group in groups) else "Adam"
    return None


def _image(
    kind: str, groups: list[dict[str, Any]], state: Mapping[Any, dict[str, Any]]
) -> OptimizerImage:
    images: list[GroupImage] = []
    parameters: list[ParameterImage] = []
    for group in groups:
        first = len(parameters)
        names = group.get("param_names") or [None] * len(group["params"])
        for name, key in zip(names, group["params"], strict=True):
            parameters.append(_parameter(name, dict(state.get(key, {}))))
        members = tuple(range(first, len(parameters)))
        images.append(GroupImage(settings=settings_of(group), members=members))
    return OptimizerImage(kind=kind, groups=tuple(images), parameters=tuple(parameters))


def _parameter(name: str | None, state: dict[str, Any]) -> ParameterImage:
    # A moment has its parameter's shape; a step counter has none.
    moments = [value for value in state.values() if isinstance(value, Tensor) and value.dim()]
    like = moments[0] if moments else None
    return ParameterImage(
        name=name,
        shape=None if like is None else tuple(like.shape),
        dtype=None if like is None else like.dtype,
        state=state,
    )
