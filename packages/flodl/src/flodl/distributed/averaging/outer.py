"""Outer optimizers: what becomes of the ranks' average before they take it over.

They see the flat parameter that all ranks share and its pseudo-gradient ``x_prev - c``. Every rank
runs the same step on the same numbers, so the state survives whichever rank dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.state import Plain, State

__all__ = ["DiLoCo", "OuterAvg", "OuterFactory", "OuterStep", "SlowMo", "make_outer"]


class OuterStep(Protocol):
    """Moves the shared parameters once per window."""

    def step(self, x: Tensor, consensus: Tensor, lr: float) -> None:
        """Replace ``x``, the parameters after the last window, by those after this one.

        Args:
            x: Flat, float32; changed in place.
            consensus: The ranks' average.
            lr: Learning rate of the inner optimizers.
        """

    def state(self) -> State:
        """Return what carries over to the next window."""

    def load(self, state: State) -> None:
        """Take over what `state` gave on another rank or in another run."""


@final
class _Average(OuterStep):
    def step(self, x: Tensor, consensus: Tensor, lr: float) -> None:  # noqa: ARG002
        x.copy_(consensus)

    def state(self) -> State:
        return State()

    def load(self, state: State) -> None:
        _expect(state, set())


@final
class _SlowMomentum(OuterStep):
    """``u <- beta u + g/lr; x <- x - alpha lr u`` (Wang et al., SlowMo, 2020)."""

    def __init__(self, alpha: float, beta: float, *, is_lr_aware: bool) -> None:
        self._alpha, self._beta, self._is_lr_aware = alpha, beta, is_lr_aware
        self._u: Tensor | None = None

    def step(self, x: Tensor, consensus: Tensor, lr: float) -> None:
        gamma = lr if self._is_lr_aware else 1.0
        if not gamma > 0:
            raise ConfigError(
                f"SlowMo with a learning rate of {lr:g}: it divides by it",
                hint="use SlowMo(lr_aware=False), or a schedule that stays above zero",
            )
        # each product and sum is rounded on its own: fused ones would differ between processors
        pull = (x - consensus).div_(gamma)
        self._u = pull if self._u is None else self._u.mul_(self._beta).add_(pull)
        x.sub_(self._u * (self._alpha * gamma))

    def state(self) -> State:
        return State() if self._u is None else State(tensors={"u": self._u})

    def load(self, state: State) -> None:
        _expect(state, {"u"} if state.tensors else set())
        self._u = state.tensors["u"].clone() if state.tensors else None


@final
class _Nesterov(OuterStep):
    """``v <- mu v + g; x <- x - lr (mu v + g)`` (Douillard et al., DiLoCo, 2023)."""

    def __init__(self, lr: float, momentum: float) -> None:
        self._lr, self._momentum = lr, momentum
        self._v: Tensor | None = None

    def step(self, x: Tensor, consensus: Tensor, lr: float) -> None:  # noqa: ARG002
        g = x - consensus
        self._v = g.clone() if self._v is None else self._v.mul_(self._momentum).add_(g)
        x.sub_(g.add_(self._v * self._momentum).mul_(self._lr))

    def state(self) -> State:
        return State() if self._v is None else State(tensors={"v": self._v})

    def load(self, state: State) -> None:
        _expect(state, {"v"} if state.tensors else set())
        self._v = state.tensors["v"].clone() if state.tensors else None


@final
class _TorchOuter(OuterStep):
    """A torch optimizer over the flat parameter."""

    def __init__(self, make: Callable[[list[Tensor]], Optimizer]) -> None:
        self._make = make
        self._optimizer: Optimizer | None = None
        self._pending: State | None = None

    def step(self, x: Tensor, consensus: Tensor, lr: float) -> None:  # noqa: ARG002
        optimizer = self._over(x)
        (flat,) = optimizer.param_groups[0]["params"]
        with torch.no_grad():
            flat.copy_(x)
        flat.grad = x - consensus
        optimizer.step()
        flat.grad = None
        x.copy_(flat.detach())

    def state(self) -> State:
        if self._optimizer is None:
            return self._pending or State()
        saved = self._optimizer.state_dict()["state"].get(0, {})
        tensors = {name: v for name, v in saved.items() if isinstance(v, Tensor)}
        plain: dict[str, Plain] = {
            name: v for name, v in saved.items() if isinstance(v, bool | int | float)
        }
        return State(tensors=tensors, meta=plain)

    def load(self, state: State) -> None:
        if self._optimizer is None:
            self._pending = State(tensors=_clones(state), meta=state.meta)
            return
        values = _clones(state) | state.meta
        whole = self._optimizer.state_dict()
        whole["state"] = {0: values} if values else {}
        self._optimizer.load_state_dict(whole)

    def _over(self, x: Tensor) -> Optimizer:
        if self._optimizer is None:
            self._optimizer = self._make([x.clone().requires_grad_()])
            if self._pending is not None:
                pending, self._pending = self._pending, None
                self.load(pending)
        return self._optimizer


@dataclass(frozen=True, kw_only=True, slots=True)
class OuterAvg:
    """The average itself: ranks take over what they agree on."""

    def build(self) -> OuterStep:
        """Return a fresh step."""
        return _Average()


@dataclass(frozen=True, slots=True)
class SlowMo:
    """Slow momentum over windows.

    Raises:
        ConfigError: ``alpha`` is not positive or ``beta`` not in [0, 1).
    """

    alpha: float = 1.0
    beta: float = 0.9
    lr_aware: bool = True
    """Whether the momentum is kept in units of the inner learning rate, as in the paper."""

    def __post_init__(self) -> None:
        _check("SlowMo", self.alpha, self.beta)

    def build(self) -> OuterStep:
        """Return a fresh step."""
        return _SlowMomentum(self.alpha, self.beta, is_lr_aware=self.lr_aware)


@dataclass(frozen=True, slots=True)
class DiLoCo:
    """Nesterov momentum over windows, made for windows of up to about 500 steps.

    Raises:
        ConfigError: ``lr`` is not positive or ``momentum`` not in [0, 1).
    """

    lr: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        _check("DiLoCo", self.lr, self.momentum)

    def build(self) -> OuterStep:
        """Return a fresh step."""
        return _Nesterov(self.lr, self.momentum)


OuterFactory: TypeAlias = OuterAvg | SlowMo | DiLoCo | Callable[[list[Tensor]], Optimizer] | None
"""A preset, or a function that makes a torch optimizer over a list with one flat parameter."""


def make_outer(factory: OuterFactory) -> OuterStep:
    """Return the step that a setting stands for; ``None`` is `OuterAvg`."""
    if factory is None:
        return _Average()
    if isinstance(factory, OuterAvg | SlowMo | DiLoCo):
        return factory.build()
    if not callable(factory):
        raise ConfigError(
            f"outer_optimizer={factory!r}: must be OuterAvg, SlowMo, DiLoCo or a function that "
            "makes a torch optimizer from a list of parameters"
        )
    return _TorchOuter(factory)


def _clones(state: State) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.tensors.items()}


def _check(name: str, rate: float, momentum: float) -> None:
    if not rate > 0 or not 0 <= momentum < 1:
        raise ConfigError(
            f"{name}({rate!r}, {momentum!r}): the first must be positive, the second in [0, 1)"
        )


def _expect(state: State, names: Iterable[str]) -> None:
    if set(state.tensors) != set(names):
        found = ", ".join(sorted(state.tensors)) or "nothing"
        wanted = ", ".join(sorted(names)) or "nothing"
        raise ConfigError(
            f"outer state holds {found}, expected {wanted}",
            hint="it belongs to another outer optimizer",
        )
