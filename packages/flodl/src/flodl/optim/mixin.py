"""What flodl's optimizers add to torch's: rates, groups, names, and the fastest implementation."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from flodl.optim.groups import GroupsBuilder, GroupView
from flodl.optim.implementation import (
    IMPLEMENTATION_FLAGS,
    Implementation,
    choose_implementation,
    implementation,
    place_state,
)
from flodl.optim.parameters import ParameterGroups, as_groups, as_list, display_names
from flodl.optim.rates import get_lr, scale_lr, separate_rates, set_group_lr, set_lr

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object

_alive: weakref.WeakSet[OptimizerMixin] = weakref.WeakSet()


class OptimizerMixin(_Base):
    """Added in front of a torch optimizer class; all arguments but ``params`` are that class's.

    Args:
        params: A module, parameters, ``(name, parameter)`` pairs, or groups of these. None at all
            is legal: a step then does nothing.
        args: As for the torch class.
        kwargs: As for the torch class. Where ``fused`` and ``foreach`` are left open, the fused
            kernels are used on CUDA where the installed torch has them, else foreach; the choice
            falls at the first step, because parameters may move until then.
    """

    state_kind: ClassVar[str] = "optimizer"
    state_class: ClassVar[str]
    """Name of the algorithm in state files."""

    def __init__(self, params: ParameterGroups, *args: Any, **kwargs: Any) -> None:
        super().__init__(as_groups(params), *args, **kwargs)
        separate_rates(self.param_groups)
        self._begin([self._is_open(group) for group in self.param_groups])
        self._join()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "state_class" not in cls.__dict__:
            cls.state_class = cls.__name__
        torch_class = next(base for base in cls.__mro__ if base.__module__.startswith("torch."))
        if torch_class is not torch.optim.Optimizer:
            # Editors and help() show torch's arguments, whichever version is installed.
            cls.__signature__ = inspect.signature(torch_class)  # type: ignore[attr-defined]

    @property
    def lr(self) -> float:
        """The learning rate of group 0."""
        return get_lr(self)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of all groups; a rate that is a tensor is written in place."""
        set_lr(self, lr)

    def set_group_lr(self, index: int, lr: float) -> None:
        """Set the learning rate of one group.

        Raises:
            IndexError: There is no such group.
        """
        set_group_lr(self, index, lr)

    def scale_lr(self, factor: float) -> None:
        """Multiply the learning rate of every group."""
        scale_lr(self, factor)

    @property
    def groups(self) -> list[GroupView]:
        """What the groups are now: their rates and the names of their parameters."""
        return [
            GroupView(index, get_lr(self, index), names)
            for index, names in enumerate(display_names(self))
        ]

    @classmethod
    def with_groups(cls, **defaults: Any) -> GroupsBuilder[Self]:
        """Begin an optimizer group by group; the arguments are the defaults of all groups.

        >>> weight, bias = torch.nn.Linear(2, 2).parameters()
        >>> from flodl.optim import Adam
        >>> Adam.with_groups(eps=1e-7).group([weight], 1e-3).group([bias], 1e-2).build().lr
        0.001
        """
        return GroupsBuilder(cls, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as torch does; its parameters may also be a module."""
        super().add_param_group({**param_group, "params": as_list(param_group["params"])})
        if hasattr(self, "_left_open"):
            separate_rates(self.param_groups)
            self._begin([*self._left_open, self._is_open(self.param_groups[-1])])

    @property
    def implementation(self) -> Implementation:
        """How the step is computed; of groups that differ, the slowest."""
        self.resolve_implementation()
        return implementation(self)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether the step itself unscales and skips: torch's gradient scaler asks for it."""
        self.resolve_implementation()
        groups = [group for group in self.param_groups if group["params"]]
        return bool(groups) and all(group.get("fused") for group in groups)

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        """Torch sets it while it constructs; the groups decide."""

    @staticmethod
    def _is_open(group: dict[str, Any]) -> bool:
        return group.get("fused") is None

    def _begin(self, left_open: list[bool]) -> None:
        """Have the implementation chosen at the next step."""
        self._left_open = left_open
        self._is_resolved = False

    def _join(self) -> None:
        # A hook, not a `step` of our own: torch wraps `step` of every class it meets with its
        # hooks, and an override that calls the torch class's step would run them twice.
        self.register_step_pre_hook(lambda optimizer, *_: optimizer.resolve_implementation())
        _alive.add(self)

    def resolve_implementation(self) -> None:
        """Choose the implementation now rather than at the first step; later calls do nothing."""
        if self._is_resolved:
            return
        self._is_resolved = True
        for group, is_open in zip(self.param_groups, self._left_open, strict=True):
            if is_open:
                choose_implementation(self, group)
            place_state(self, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch does, but keep this optimizer's own implementation.

        Fused, foreach and capturable say how this machine computes, not what was trained; torch
        would take them over from the machine that saved. A rate that is a tensor stays the same
        tensor. The state is this optimizer's own: torch would share tensors with ``state_dict``,
        and so with the optimizer that it came from.
        """
        own = [
            {key: group[key] for key in (*IMPLEMENTATION_FLAGS, "lr") if key in group}
            for group in self.param_groups
        ]
        super().load_state_dict(state_dict)
        self._own_state(state_dict)
        for group, kept in zip(self.param_groups, own, strict=True):
            rate = kept.pop("lr")
            if isinstance(rate, Tensor):
                with torch.no_grad():
                    rate.copy_(torch.as_tensor(group["lr"]))
                group["lr"] = rate
            else:
                group["lr"] = float(group["lr"])
            group.update(kept)
        for group in self.param_groups:
            place_state(self, group)

    def _own_state(self, loaded: dict[str, Any]) -> None:
        theirs = {id(value) for entry in loaded["state"].values() for value in entry.values()}
        for entry in self.state.values():
            for key, value in entry.items():
                if isinstance(value, Tensor) and id(value) in theirs:
                    entry[key] = value.clone()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_left_open": self._left_open}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_left_open" in state:
            self._begin(state["_left_open"])
            self._join()


def optimizers_with_state_for(parameters: Iterable[Tensor]) -> list[OptimizerMixin]:
    """Return the living optimizers of flodl that hold state for any of the parameters."""
    wanted = set(parameters)
    return [
        optimizer
        for optimizer in list(_alive)
        if any(parameter in wanted for parameter in optimizer.state)
    ]
