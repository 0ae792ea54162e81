"""The plane of every mode that averages parameters."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.consensus import Consensus
from flodl.distributed.averaging.divergence import Divergence, measure, norm
from flodl.distributed.averaging.exchange import Exchange, Part, Payload
from flodl.distributed.averaging.inner import InitialState, averaged_state
from flodl.distributed.averaging.layout import Layout
from flodl.distributed.averaging.moments import SharedMoments
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.plane import Clock, Outcome, Plane
from flodl.distributed.averaging.wire import Wire, wire_dtype
from flodl.distributed.collective.errors import CollectiveError

__all__ = ["ParameterPlane", "Snapshot"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """What a rank has put aside for a window."""

    window: int
    is_finite: bool
    pre_norm: float
    """Norm of the parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Result:
    """An average that is there and not taken over yet."""

    window: int
    average: Tensor
    lr: float
    counters: list[int]
    is_finite: bool
    weights: tuple[float, ...]


@final
class ParameterPlane(Plane):
    """Averages parameters by work and floating-point buffers equally.

    Args:
        model: Built and on its device; its tensors keep their storage.
        config: How to average.
        optimizer: Of the rank; needed for SlowMo and for any ``inner_state`` but ``"keep"``.
        clock: Seconds; for `outcome`.
    """

    def __init__(
        self,
        model: nn.Module,
        config: PlaneConfig,
        *,
        optimizer: Optimizer | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(model, config, clock=clock)
        if optimizer is None and config.inner_state != "keep":
            raise ConfigError(f"inner_state={config.inner_state!r} without an optimizer")
        extra = None
        if optimizer is not None and config.inner_state == "average":
            extra = averaged_state(model, optimizer)
        self._optimizer = optimizer
        self._initial = None
        if optimizer is not None and config.inner_state == "reset":
            self._initial = InitialState(optimizer)
        self._layout = Layout(model, extra)
        self._consensus = Consensus(model, self._layout, config, self.device)
        self._values = torch.zeros(self._layout.numel, device=self.device)
        self._difference = torch.zeros_like(self._values) if config.wire == "bf16" else None
        self._snapshot: Snapshot | None = None
        self._counters: list[int] = []
        self._result: _Result | None = None
        if optimizer is not None and config.shared_moments and config.outer is None:
            self.moments = SharedMoments.of(optimizer) if self._initial is None else None

    @property
    def consensus(self) -> Consensus:
        """What all ranks share after the last completed window."""
        return self._consensus

    def snapshot(self, window: int) -> Snapshot:
        """Put the model's values aside; training may change them from now on.

        Raises:
            CollectiveError: An average that uses the values put aside before is under way.
        """
        with self._rounds.lock:
            if self._rounds.is_pending:
                raise CollectiveError(f"snapshot({window}): an average is under way")
            self._rebind()
            self._layout.flatten(self._values)
            self._counters = self._layout.counters()
            pre_norm = norm(self._values[: self._layout.parameter_end])
            rest = norm(self._values[self._layout.parameter_end :])
            is_finite = bool(torch.isfinite(torch.tensor(pre_norm + rest)))
            self._snapshot = Snapshot(window=window, is_finite=is_finite, pre_norm=pre_norm)
            return self._snapshot

    def contribute(self, window: int, weight: float) -> None:
        """Begin the average of a window with this rank's share of its work; returns at once.

        A rank with a weight of 0 takes part and takes over the result; it needs no snapshot.
        Another thread than the main one may call this.

        Raises:
            CollectiveError: There is no snapshot of this window and the weight is not 0, or there
                is no generation to average over.
        """
        with self._rounds.lock:
            snapshot = self._snapshot
            if snapshot is None or snapshot.window != window:
                snapshot = None
                if weight > 0:
                    raise CollectiveError(f"contribute({window}, {weight:g}): no snapshot of it")
            self._result = None
            values = self._travelling() if weight > 0 else None
            counters = self._counters if snapshot is not None else self._layout.counters()
            payload = Payload(
                values=values,
                parts=self._parts(),
                side=torch.tensor([weight, self._lr(), *counters], dtype=torch.float64),
                wire=self._wire(),
            )
            self._started_at = self._clock()
            self._rounds.start(payload, lambda exchange: self._conclude(exchange, window, snapshot))

    def commit(self) -> None:
        """Make the completed average the consensus, and write it into the model, in place.

        With ``alpha`` the model's own values, with all that was trained since the snapshot, are
        blended towards it; a rank whose values were not finite takes it over whole.

        Raises:
            CollectiveError: No average was completed since the last commit.
            ConfigError: The outer optimizer cannot step; nothing is changed.
        """
        with self._rounds.lock:
            result = self._result
            if result is None:
                raise CollectiveError("commit() without a completed average")
            self._rebind()
            self._consensus.take(
                result.window, result.average, lr=result.lr, counters=result.counters
            )
            self._result = None
            self.last_completed = result.window
            if self.moments is not None:
                self.moments.weigh(result.weights)
            self._consensus.write(is_blended=result.is_finite)
            if self._initial is not None:
                self._initial.restore()

    @property
    def has_result(self) -> bool:
        """See `Plane`."""
        return self._result is not None

    def _conclude(self, exchange: Exchange, window: int, snapshot: Snapshot | None) -> None:
        average = exchange.result
        if self._wire() == "bf16":
            average = absolute(average, self._consensus.flat)
        weights = exchange.sides[:, 0]
        drift = self._drift(average, snapshot)
        self._result = _Result(
            window=window,
            average=average,
            lr=float((exchange.sides[:, 1] * weights).sum() / weights.sum()),
            counters=exchange.sides[:, 2:].amax(0).long().tolist(),
            is_finite=snapshot is None or snapshot.is_finite,
            weights=tuple((weights / weights.sum()).tolist()),
        )
        self._outcome = Outcome(
            window=window,
            ms=1000 * (self._clock() - self._started_at),
            bytes_out=exchange.bytes_out,
            bytes_in=exchange.bytes_in,
            delta=drift.delta if drift else None,
            pre_norm=drift.pre_norm if drift else None,
            post_norm=drift.post_norm if drift else None,
        )

    def _drop_result(self) -> None:
        self._result = None

    def _rebind(self) -> None:
        """Average the optimizer's present state: loading one may have replaced its tensors."""
        if self._optimizer is not None and self._config.inner_state == "average":
            self._layout.rebind(averaged_state(self._model, self._optimizer))

    def _drift(self, average: Tensor, snapshot: Snapshot | None) -> Divergence | None:
        if snapshot is None or not snapshot.is_finite:
            return None
        end = self._layout.parameter_end
        return measure(self._values[:end], average[:end], snapshot.pre_norm)

    def _travelling(self) -> Tensor:
        if self._difference is None or self._wire() == "fp32":
            return self._values
        return torch.sub(self._values, self._consensus.flat, out=self._difference)

    def _parts(self) -> tuple[Part, ...]:
        by_work = Part(0, self._layout.weighted_end)
        equal = Part(self._layout.weighted_end, self._layout.numel, is_equal=True)
        return tuple(part for part in (by_work, equal) if part.start < part.stop)

    def _wire(self) -> Wire:
        # before a first result the ranks have nothing to send differences to
        return self._config.wire if self._consensus.is_shared else "fp32"

    def _lr(self) -> float:
        return 0.0 if self._optimizer is None else float(self._optimizer.param_groups[0]["lr"])

    def _numel(self, world_size: int) -> int:  # noqa: ARG002 - the same for every size
        return self._layout.numel

    def _side(self) -> int:
        return 2 + len(self._layout.counter_names)

    def _wire_dtype(self) -> torch.dtype:
        return wire_dtype(self._wire())

    def _description(self) -> list[str]:
        return self._layout.description()

    @property
    def signature(self) -> str:
        """See `Plane`."""
        return self._layout.signature()

    def _keeps_consensus(self) -> bool:
        return self._consensus.is_shared


def absolute(difference: Tensor, base: Tensor) -> Tensor:
    """Return what an averaged difference stands for."""
    return base + difference
