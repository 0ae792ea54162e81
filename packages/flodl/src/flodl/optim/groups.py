"""Optimizers with several parameter groups: describing them, and looking at them."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from flodl.optim.parameters import Parameters, as_list

_OptimizerT = TypeVar("_OptimizerT", bound=torch.optim.Optimizer)


@dataclass(frozen=True, slots=True)
class GroupView:
    """What one parameter group was when it was looked at.

    Attributes:
        index: Its place, counted from 0.
        lr: Its learning rate.
        names: Names of its parameters, or their positions where they have none.
    """

    index: int
    lr: float
    names: tuple[str, ...]


class GroupsBuilder(Generic[_OptimizerT]):
    """Gathers parameter groups; ``OptimizerClass.with_groups(...)`` makes one."""

    def __init__(self, kind: type[_OptimizerT], defaults: dict[str, Any]) -> None:
        self._kind = kind
        self._defaults = defaults
        self._groups: list[dict[str, Any]] = []
        self._check_settings("with_groups", defaults)

    def group(
        self, params: Parameters, lr: float | Tensor, **overrides: Any
    ) -> GroupsBuilder[_OptimizerT]:
        """Add a group with its learning rate and the settings in which it differs.

        Raises:
            TypeError: The optimizer has no such setting.
        """
        self._check_settings("group", overrides)
        self._groups.append({"params": as_list(params), "lr": lr, **overrides})
        return self

    def build(self) -> _OptimizerT:
        """Return the optimizer.

        Raises:
            ValueError: There is no group, or a parameter stands in two; the message names it.
        """
        if not self._groups:
            raise ValueError(
                f"{self._kind.__name__}.with_groups: no group; "
                "add at least one with .group(params, lr)"
            )
        return self._kind(self._groups, **self._defaults)

    def _check_settings(self, call: str, settings: dict[str, Any]) -> None:
        known = [name for name in inspect.signature(self._kind).parameters if name != "params"]
        for name in settings:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                raise TypeError(
                    f"{self._kind.__name__}.{call}: no setting {name!r}, "
                    f"there are {', '.join(known)}{meant}"
                )
