"""What a rank measures between two reports: loss, scalars, times."""

from __future__ import annotations

from collections import deque
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
        telemetry = Telemetry(
            loss=self._loss / self._samples if self._samples else None,
            lr=lr,
            scalars=self.scalars.means(),
            timing={"compute_ms": self.compute_ms, "starve_ms": self.starve_ms},
        )
        self._loss, self._samples = 0.0, 0
        self.compute_ms = self.starve_ms = 0.0
        return telemetry
