"""What an optimizer's state file says, apart from any optimizer and any file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flodl.checkpoint.format import DTYPE_OF_NAME, NAME_OF_DTYPE
from flodl.checkpoint.optim.values import Json, MalformedStateError, decode, encode
from flodl.optim.implementation import IMPLEMENTATION_FLAGS

_NOT_SETTINGS = ("params", "param_names", *IMPLEMENTATION_FLAGS)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterImage:
    """One parameter: how it is recognized, and its state.

    Attributes:
        name: Its name, or ``None`` where it is known by position only.
        shape: Its shape, or ``None`` where the source did not tell.
        dtype: Its dtype, or ``None`` where the source did not tell.
        state: Tensors and plain values by key; empty before the first step.
    """

    name: str | None
    shape: tuple[int, ...] | None
    dtype: torch.dtype | None
    state: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupImage:
    """One group: its settings, and the positions of its parameters."""

    settings: dict[str, Any]
    members: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerImage:
    """An optimizer's whole state: the name of its class, its groups and its parameters."""

    kind: str
    groups: tuple[GroupImage, ...]
    parameters: tuple[ParameterImage, ...]

    def names(self) -> list[str]:
        """Return the parameters' names, or their positions where they have none."""
        return [
            str(position) if parameter.name is None else parameter.name
            for position, parameter in enumerate(self.parameters)
        ]


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """Return the name of an optimizer's algorithm."""
    return str(getattr(optimizer, "state_class", type(optimizer).__name__))


def image_of(optimizer: torch.optim.Optimizer) -> OptimizerImage:
    """Return what there is to save of an optimizer; tensors are not copied."""
    groups: list[GroupImage] = []
    parameters: list[ParameterImage] = []
    for group in optimizer.param_groups:
        names = group.get("param_names") or [None] * len(group["params"])
        first = len(parameters)
        for name, parameter in zip(names, group["params"], strict=True):
            parameters.append(
                ParameterImage(
                    name=name,
                    shape=tuple(parameter.shape),
                    dtype=parameter.dtype,
                    state=dict(optimizer.state.get(parameter, {})),
                )
            )
        groups.append(
            GroupImage(settings=settings_of(group), members=tuple(range(first, len(parameters))))
        )
    return OptimizerImage(
        kind=kind_of(optimizer), groups=tuple(groups), parameters=tuple(parameters)
    )


def settings_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a group says about the update itself, with tensors of one element as numbers."""
    return {key: _plain(value) for key, value in group.items() if key not in _NOT_SETTINGS}


def _plain(value: object) -> object:
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def to_json(image: OptimizerImage) -> tuple[Json, dict[str, Tensor]]:
    """Return an image as JSON, and the tensors that it names."""
    tensors: dict[str, Tensor] = {}
    states = [
        {key: encode(value, tensors, f"{position}/{key}") for key, value in parameter.state.items()}
        for position, parameter in enumerate(image.parameters)
    ]
    groups = [
        {
            "settings": {
                key: encode(value, tensors, f"group {index}/{key}")
                for key, value in group.settings.items()
            },
            "members": list(group.members),
        }
        for index, group in enumerate(image.groups)
    ]
    parameters = [
        {
            "name": parameter.name,
            "shape": None if parameter.shape is None else list(parameter.shape),
            "dtype": None if parameter.dtype is None else NAME_OF_DTYPE.get(parameter.dtype),
        }
        for parameter in image.parameters
    ]
    document = {"class": image.kind, "groups": groups, "params": parameters, "state": states}
    return document, tensors


def from_json(document: Json, tensors: Mapping[str, Tensor]) -> OptimizerImage:
    """Return the image that ``to_json`` described.

    Raises:
        MalformedStateError: The JSON is not of ``to_json``.
    """
    try:
        parameters = tuple(
            ParameterImage(
                name=_checked(entry["name"], str | None),
                shape=None if entry["shape"] is None else tuple(map(int, entry["shape"])),
                dtype=None if entry["dtype"] is None else DTYPE_OF_NAME[entry["dtype"]],
                state={key: decode(value, tensors) for key, value in state.items()},
            )
            for entry, state in zip(document["params"], document["state"], strict=True)
        )
        groups = tuple(
            GroupImage(
                settings={key: decode(value, tensors) for key, value in entry["settings"].items()},
                members=tuple(_checked(member, int) for member in entry["members"]),
            )
            for entry in document["groups"]
        )
        kind = _checked(document["class"], str)
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedStateError(f"{type(error).__name__}: {error}") from error
    if sorted(member for group in groups for member in group.members) != list(
        range(len(parameters))
    ):
        raise MalformedStateError("the groups do not hold each parameter once")
    return OptimizerImage(kind=kind, groups=groups, parameters=parameters)


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise MalformedStateError(f"{value!r:.60} is no {kind}")
    return value
