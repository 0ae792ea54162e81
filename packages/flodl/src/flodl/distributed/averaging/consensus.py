"""The parameters that all ranks share: what a window's average becomes, and how a model takes it.

Every rank holds them in float32 and moves them by the same arithmetic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from flodl.core.errors import ConfigError
from flodl.distributed.averaging import kernels
from flodl.distributed.averaging.layout import Layout
from flodl.distributed.averaging.outer import make_outer
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.state import Plain, State

__all__ = ["Consensus"]


@final
class Consensus:
    """The last completed window's result, and what carries over to the next.

    Args:
        model: Its tensors are written in place, never replaced.
        layout: The model's averaged tensors.
        config: Blending and the outer optimizer.
        device: Where the flat buffers live.
    """

    def __init__(
        self, model: nn.Module, layout: Layout, config: PlaneConfig, device: torch.device
    ) -> None:
        self._model = model
        self._layout = layout
        self._config = config
        self._outer = make_outer(config.outer)
        self._counters = layout.counters()
        self.flat = torch.empty(layout.numel, device=device)
        """Parameters, averaged state and buffers as all ranks hold them."""
        self.is_shared = False
        """Whether it is a window's result, or the initial values that were handed over."""
        self.window = 0
        """Window that it is the result of; 0 for the initial values."""
        self._center: Tensor | None = None
        self._target = self.flat
        self.adopt_model()

    def adopt_model(self) -> None:
        """Take the model's own values as the shared ones, before any window."""
        self._layout.flatten(self.flat)
        self._counters = self._layout.counters()
        if self._config.center == "elastic":
            self._center, self._target = self.flat.clone(), self.flat.clone()

    def take(self, window: int, average: Tensor, *, lr: float, counters: Sequence[int]) -> None:
        """Make a window's average the shared values; the model is not touched."""
        end = self._layout.parameter_end
        self._outer.step(self.flat[:end], average[:end], lr)
        self.flat[end:] = average[end:]
        self._counters = list(counters)
        self.window = window
        self.is_shared = True
        if self._center is not None:
            # ranks blend towards where the center was, and it follows by the same factor
            self._target.copy_(self._center)
            self._blend(self._center, self.flat)

    def write(self, *, is_blended: bool) -> None:
        """Write the shared values into the model, or blend its own values towards them."""
        if not is_blended or self._config.alpha is None:
            self._layout.restore(self.flat)
            self._layout.set_counters(self._counters)
            return
        own = torch.empty_like(self.flat)
        self._layout.flatten(own)
        self._blend(own, self._target)
        self._layout.restore(own)
        self._layout.set_counters([*map(max, self._layout.counters(), self._counters)])

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of the shared parameters and buffers on the CPU, by name."""
        return {n: t.detach().cpu().clone() for n, t in self._layout.named(self.flat).items()}

    def slots(self) -> list[Plain]:
        """Return name, first element and shape of each tensor in the flat buffer."""
        return [[slot.name, slot.start, list(slot.shape)] for slot in self._layout.slots]

    @contextlib.contextmanager
    def swapped(self) -> Iterator[None]:
        """Let the model hold the shared values inside the block, and its own again after it."""
        counters = self._layout.counters()
        exact = [tensor.detach().clone() for tensor in self._layout.tensors]
        self._layout.restore(self.flat)
        self._layout.set_counters(self._counters)
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, value in zip(self._layout.tensors, exact, strict=True):
                    tensor.copy_(value)
            self._layout.set_counters(counters)

    def state(self) -> State:
        """Return everything that a rank needs to go on from here, but the model's local parts."""
        tensors = {"flat": self.flat}
        if self._center is not None:
            tensors["center"] = self._center
        meta: dict[str, Plain] = {
            "window": self.window,
            "is_shared": self.is_shared,
            "counters": list(self._counters),
            "signature": self._layout.signature(),
        }
        return State(tensors=tensors, meta=meta) | self.outer_state().prefixed("outer/")

    def load_outer(self, state: State) -> None:
        """Take over what `outer_state` gave.

        Raises:
            ConfigError: It belongs to another outer optimizer.
        """
        self._outer.load(state)

    def load(self, state: State) -> None:
        """Take over what `state` gave; the model is not touched.

        Raises:
            ConfigError: It belongs to another model or other settings; nothing is changed.
        """
        self._check(state)
        self._outer.load(state.part("outer/"))
        self.flat.copy_(state.tensors["flat"])
        if self._center is not None:
            self._center.copy_(state.tensors["center"])
            self._target.copy_(self._center)
        self.window = int(cast("int", state.meta["window"]))
        self.is_shared = bool(state.meta["is_shared"])
        self._counters = cast("list[int]", state.meta["counters"])

    def outer_state(self) -> State:
        """Return what the outer optimizer carries over to the next window."""
        return self._outer.state()

    def local_parts(self) -> State:
        """Return the model's tensors that are not averaged: frozen, integer, bool."""
        averaged = {slot.name for slot in self._layout.slots} | set(self._layout.counter_names)
        entries = self._model.state_dict().items()
        rest = {n: t for n, t in entries if n not in averaged and isinstance(t, Tensor)}
        return State(tensors=_without_aliases(rest, self._layout.tensors))

    @torch.no_grad()
    def load_local_parts(self, state: State) -> None:
        """Write another rank's tensors that are not averaged, in place."""
        entries = self._model.state_dict()
        for name, value in state.tensors.items():
            entries[name].copy_(value)

    def _check(self, state: State) -> None:
        meta, wanted = state.meta, {"flat"} if self._center is None else {"flat", "center"}
        if not wanted <= set(state.tensors) or meta.get("signature") != self._layout.signature():
            raise ConfigError(
                "this consensus belongs to another model, or to other averaging settings",
                hint="load it into the model and with the settings that it was saved with",
            )

    def _blend(self, own: Tensor, target: Tensor) -> None:
        alpha = self._config.alpha
        assert alpha is not None
        if own.device.type == "cpu":
            kernels.easgd_blend_(own, target, alpha)
        else:
            own.mul_(1.0 - alpha).add_(target * alpha)


def _without_aliases(tensors: dict[str, Tensor], others: Sequence[Tensor]) -> dict[str, Tensor]:
    """Leave out second names of tensors that are already named or travel elsewhere."""
    seen = {tensor.data_ptr() for tensor in others if tensor.numel()}
    kept = {}
    for name, tensor in tensors.items():
        if tensor.numel() and tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        kept[name] = tensor
    return kept
