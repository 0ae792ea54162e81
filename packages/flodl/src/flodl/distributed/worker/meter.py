"""What a rank measures between two reports: loss, scalars, times."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from flodl.distributed.protocol.values import Telemetry
from flodl.engine.ring import StepRecord
from flodl.metrics.scalars import ScalarScope


@dataclass(slots=True)
class WindowMeter:
    """Sums over the batches since the last report.

    Losses may arrive some steps after their batch; they then count for the window that is open.

    Args:
        scalars: Where step code records its scalars.
    """

    scalars: ScalarScope
    compute_ms: float = 0.0
    starve_ms: float = 0.0
    _expected: deque[int] = field(default_factory=deque)
    _loss: float = 0.0
    _samples: int = 0
    _sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Total and number of values of each scalar."""
    _told: _Told | None = None

    def expect(self, samples: int) -> None:
        """Count a batch whose loss comes later."""
        self._expected.append(samples)

    def forget_last(self) -> None:
        """Take back the batch counted last, whose step was not taken."""
        self._expected.pop()

    def add(self, record: StepRecord) -> None:
        """Take the loss of the next batch, in the order in which they were counted."""
        samples = self._expected.popleft()
        self._loss += record.values[0] * samples
        self._samples += samples

    def take(self, lr: float) -> Telemetry:
        """Return what was measured, and start afresh."""
        self._add_scalars(self.scalars.drain())
        telemetry = Telemetry(
            loss=self._loss / self._samples if self._samples else None,
            lr=lr,
            scalars={name: total / count for name, (total, count) in self._sums.items()},
            timing={"compute_ms": self.compute_ms, "starve_ms": self.starve_ms},
        )
        self._told = _Told(
            loss=self._loss,
            samples=self._samples,
            compute_ms=self.compute_ms,
            starve_ms=self.starve_ms,
            sums=self._sums,
        )
        self._loss, self._samples = 0.0, 0
        self.compute_ms = self.starve_ms = 0.0
        self._sums = {}
        return telemetry

    def put_back(self) -> None:
        """Count what was told last once more: that report was of a window that has not ended."""
        told, self._told = self._told, None
        if told is None:
            return
        self._loss += told.loss
        self._samples += told.samples
        self.compute_ms += told.compute_ms
        self.starve_ms += told.starve_ms
        self._add_scalars(told.sums)

    def _add_scalars(self, sums: Mapping[str, tuple[float, int]]) -> None:
        for name, (total, count) in sums.items():
            before = self._sums.get(name, (0.0, 0))
            self._sums[name] = (before[0] + total, before[1] + count)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """The sums of one report."""

    loss: float
    samples: int
    compute_ms: float
    starve_ms: float
    sums: Mapping[str, tuple[float, int]]
