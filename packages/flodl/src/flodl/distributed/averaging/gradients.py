"""The plane of `nccl_sync`: gradients are averaged at every step, before the optimizer's."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.consensus import Consensus
from flodl.distributed.averaging.exchange import Exchange, Part, Payload
from flodl.distributed.averaging.layout import Layout, copy_all
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Clock, Outcome, Plane
from flodl.distributed.averaging.state import State
from flodl.distributed.collective.errors import CollectiveError

__all__ = ["GradientOutcome", "GradientPlane"]

_SAMPLES, _BAD, _GOOD, _SCALES = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientOutcome:
    """What the ranks found out together in one step."""

    samples: int
    """Of all ranks."""
    bad_ranks: int
    """Ranks whose gradients or buffers were not finite; with any, all ranks skip the step."""
    scale: float | None
    """The smallest scale of the ranks' gradient scalers; ``None`` where none has one."""

    @property
    def is_usable(self) -> bool:
        """Whether the gradients may be stepped with."""
        return self.samples > 0 and self.bad_ranks == 0


@final
class GradientPlane(Plane):
    """Averages gradients over all samples of a step, and floating-point buffers equally.

    The buffer holds gradients times samples, buffers, and in its tail what the ranks must know of
    each other: samples, bad ranks, good ranks, a scale for each rank, and for each parameter how
    many ranks have its gradient. So one collective a step does.

    Args:
        model: Built and on its device; its tensors keep their storage.
        config: How to average; blending, outer optimizers and bfloat16 do not apply.
        clock: Seconds; for `outcome`.
    """

    def __init__(
        self, model: nn.Module, config: PlaneConfig, *, clock: Clock = time.monotonic
    ) -> None:
        super().__init__(model, config, clock=clock)
        refused = {"wire": "fp32", "alpha": None, "outer": None, "inner_state": "keep"}
        for name, only in refused.items():
            if getattr(config, name) != only:
                raise ConfigError(f"{name}={getattr(config, name)!r}: gradients are averaged as is")
        self._layout = Layout(model)
        parameters = dict(model.named_parameters())
        self._parameters = [parameters[slot.name] for slot in self._layout.parameters]
        self._consensus = Consensus(model, self._layout, config, self.device)
        self._values = torch.zeros(0, device=self.device)
        self._sum: Tensor | None = None
        self._step = 0
        self._world_size = 1

    @property
    def consensus(self) -> Consensus:
        """The model's own values: all ranks step alike."""
        self._consensus.adopt_model()
        return self._consensus

    def contribute(
        self,
        step: int,
        samples: int,
        scale: float | None = None,
        *,
        is_bad: Tensor | None = None,
    ) -> None:
        """Begin the average of the gradients that are there; returns at once.

        Args:
            step: Its number.
            samples: How many the gradients are the mean over; 0: this rank has no batch.
            scale: Of this rank's gradient scaler.
            is_bad: Above 0 where the step is of no use for another reason; 0-d.
        """
        with self._rounds.lock:
            self._sum = None
            self._fill(samples, scale, is_bad)
            payload = Payload(
                values=self._values,
                parts=(Part(0, self._values.numel()),),
                side=torch.zeros(0, dtype=torch.float64),
                is_sum=True,
            )
            self._started_at = self._clock()
            self._rounds.start(payload, lambda exchange: self._conclude(exchange, step))

    @torch.no_grad()
    def commit(self) -> GradientOutcome:
        """Write the average into ``.grad`` and the buffers, in place.

        A gradient that no rank has stays ``None``; one that others have is made. With a bad rank
        all gradients become NaN, as their mean is, so that a gradient scaler notices.

        Raises:
            CollectiveError: No average was completed since the last commit.
        """
        if self._sum is None:
            raise CollectiveError("commit() without a completed average")
        total, self._sum = self._sum, None
        self.last_completed = self._step
        tail = total[self._layout.numel :].tolist()
        presence_at = _SCALES + self._world_size
        scales = [scale for scale in tail[_SCALES:presence_at] if scale > 0]
        outcome = GradientOutcome(
            samples=round(tail[_SAMPLES]),
            bad_ranks=round(tail[_BAD]),
            scale=min(scales) if scales else None,
        )
        if outcome.bad_ranks:
            total[: self._layout.parameter_end] = torch.nan
        if outcome.bad_ranks or outcome.samples:
            self._write_gradients(total, max(1, outcome.samples), tail[presence_at:])
        if tail[_GOOD] > 0:
            self._write_buffers(total, tail[_GOOD])
        return outcome

    def _given(self, extra: State | None) -> State:
        """See `Plane`; float32 would round wider tensors, which nothing brings together later."""
        return super()._given(extra) | State(tensors=self._wider()).prefixed("exact/")

    def _received(self, state: State) -> State:
        extra = super()._received(state)
        exact = state.part("exact/").tensors
        with torch.no_grad():
            for name, tensor in self._wider().items():
                tensor.copy_(exact[name])
        return extra

    def _wider(self) -> dict[str, Tensor]:
        """Return the model's own tensors that are wider than what travels otherwise."""
        layout = self._layout
        named = zip(layout.slots, layout.tensors, strict=True)
        return {slot.name: tensor for slot, tensor in named if tensor.itemsize > 4}

    @property
    def has_result(self) -> bool:
        """See `Plane`."""
        return self._sum is not None

    def _drop_result(self) -> None:
        self._sum = None

    @torch.no_grad()
    def _fill(self, samples: int, scale: float | None, is_bad: Tensor | None) -> None:
        formation = self._formed
        self._world_size = formation.world_size
        numel, end = self._layout.numel, self._layout.parameter_end
        if self._values.numel() != self._numel(self._world_size):
            self._values = torch.zeros(self._numel(self._world_size), device=self.device)
        tail = self._values[numel:]
        if samples == 0:
            self._values.zero_()
        else:
            self._copy_in(tail[_SCALES + self._world_size :])
            is_good = torch.isfinite(torch.stack(torch.aminmax(self._values[:numel]))).all()
            if is_bad is not None:
                is_good &= is_bad <= 0
            self._values[:end].mul_(samples)
            if self.device.type != "cpu":  # no branch on the flag: it would wait for the GPU
                self._values[:numel].masked_fill_(~is_good, 0.0)
            elif not is_good:
                self._values[:numel].zero_()
            tail[_SAMPLES] = samples
            tail[_BAD], tail[_GOOD] = ~is_good, is_good
        tail[_SCALES : _SCALES + self._world_size] = 0.0
        if scale is not None:
            tail[_SCALES + formation.rank] = scale

    def _copy_in(self, presence: Tensor) -> None:
        """Put gradients and buffers into the payload."""
        places = self._layout.views(self._values)
        count = len(self._parameters)
        has_gradient = [p.grad is not None for p in self._parameters]
        if not all(has_gradient):
            self._values[: self._layout.parameter_end].zero_()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        copy_all(list(itertools.compress(places, has_gradient)), gradients)
        copy_all(places[count:], self._layout.tensors[count:])
        if all(has_gradient):
            presence.fill_(1.0)
        else:
            presence.copy_(torch.tensor(has_gradient, dtype=torch.float32))

    def _conclude(self, exchange: Exchange, step: int) -> None:
        self._sum, self._step = exchange.result, step
        self._outcome = Outcome(
            window=step,
            ms=1000 * (self._clock() - self._started_at),
            bytes_out=exchange.bytes_out,
            bytes_in=exchange.bytes_in,
        )

    def _write_gradients(self, total: Tensor, samples: int, presence: Sequence[float]) -> None:
        total[: self._layout.parameter_end].div_(samples)
        places = self._layout.views(total[: self._layout.numel])
        for parameter, count in zip(self._parameters, presence, strict=True):
            if parameter.grad is None and count > 0:
                parameter.grad = torch.empty_like(parameter)
        present = [p.grad is not None for p in self._parameters]
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        copy_all(gradients, list(itertools.compress(places, present)))

    def _write_buffers(self, total: Tensor, count: float) -> None:
        total[self._layout.parameter_end : self._layout.numel].div_(count)
        places = self._layout.views(total[: self._layout.numel])
        first = len(self._parameters)
        copy_all(self._layout.tensors[first:], places[first:])

    def _numel(self, world_size: int) -> int:
        return self._layout.numel + _SCALES + world_size + len(self._parameters)

    def _side(self) -> int:
        return 0

    def _wire_dtype(self) -> torch.dtype:
        return torch.float32

    def _description(self) -> list[str]:
        return ["gradients", *self._layout.description()]

    @property
    def signature(self) -> str:
        """See `Plane`."""
        return hashlib.sha256("\n".join(self._description()).encode()).hexdigest()

    def _keeps_consensus(self) -> bool:
        return False
