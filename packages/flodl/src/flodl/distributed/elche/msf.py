"""A guard that estimates how fast ranks drift apart: the exponent of their divergence."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, Self, final

from flodl.core.errors import ConfigError
from flodl.distributed.config import (
    STABLE,
    SUPPRESS_GROWTH,
    DivergenceReport,
    Verdict,
    nudge_down,
)
from flodl.distributed.config.guard import GuardState

DEFAULT_ALPHA = 0.9
NOISE_FLOOR = 1e-8
MOST_STEPS = 1000


@dataclass(kw_only=True, slots=True)
class DriftRate:
    """Smoothed ``ln(D_t / D_{t-1}) / k``: how the divergence grows with each step.

    The average is corrected for its start by ``1 - alpha ** t``.
    """

    alpha: float = DEFAULT_ALPHA
    noise_floor: float = NOISE_FLOOR
    previous: float | None = None
    raw: float | None = None
    """Of the last window that had one."""
    average: float = 0.0
    count: int = 0

    @property
    def smoothed(self) -> float | None:
        """The rate per step; ``None`` before the second window."""
        return self.average / (1 - self.alpha**self.count) if self.count else None

    def take(self, divergence: float, steps: int) -> bool:
        """Take a window's divergence; returns whether it gave a rate.

        Divergence at the noise floor is no reference for the next window, and is not one itself.
        """
        before, self.previous = self.previous, divergence
        if not divergence > self.noise_floor:
            self.previous = None
            return False
        if before is None or steps < 1:
            return False
        self.raw = math.log(divergence / before) / steps
        self.average = self.alpha * self.average + (1 - self.alpha) * self.raw
        self.count += 1
        return True

    def telemetry(self) -> dict[str, float]:
        """Return the raw and the smoothed rate, where there is one."""
        smoothed = self.smoothed
        if self.raw is None or smoothed is None:
            return {}
        return {"lambda_raw": self.raw, "lambda_ema": smoothed}


@final
class MsfGuard:
    """Suppresses growth, or shrinks the anchor, while the drift rate stays high.

    Args:
        alpha: Smoothing of the rate.
        suppress: Rate per step and windows in a row that suppress growth.
        nudge: Rate, windows in a row, and factor that shrink the anchor; ``None``: never.
        noise_floor: Divergence that is too small to tell anything.
        d_max: Divergence that the closed form aims at.
        controller: ``"closed_form"`` sets the window length from the rate (experimental).

    Raises:
        ConfigError: A number is out of range, or the closed form has no ``d_max``.
    """

    def __init__(
        self,
        alpha: float = DEFAULT_ALPHA,
        suppress: tuple[float, int] = (1e-3, 3),
        nudge: tuple[float, int, float] | None = (1e-2, 3, 0.5),
        noise_floor: float = NOISE_FLOOR,
        d_max: float | None = None,
        controller: Literal["closed_form"] | None = None,
    ) -> None:
        if not 0 < alpha < 1:
            raise ConfigError(f"MsfGuard alpha={alpha!r}: must lie between 0 and 1")
        if controller not in (None, "closed_form"):
            raise ConfigError(f'MsfGuard controller={controller!r}: must be "closed_form" or None')
        if controller is not None and not (d_max is not None and d_max > 0):
            raise ConfigError(f"MsfGuard d_max={d_max!r}: the closed form needs a positive number")
        self.suppress = suppress
        self.nudge = nudge
        self.d_max = d_max
        self.controller = controller
        self._rate = DriftRate(alpha=alpha, noise_floor=noise_floor)
        self._suppress_streak = 0
        self._nudge_streak = 0

    def without_nudge(self) -> Self:
        """Never shrink the anchor; returns itself."""
        self.nudge = None
        return self

    @property
    def ema(self) -> float | None:
        """Smoothed rate per step; ``None`` before the second window."""
        return self._rate.smoothed

    def report(self, report: DivergenceReport, k_used: int, k_max: int) -> Verdict:
        """Return the verdict on a window."""
        if not self._rate.take(report.divergence, k_max):
            return STABLE
        rate = self._rate.smoothed
        assert rate is not None
        if self.controller is not None and self.d_max is not None:
            return _closed_form(report.divergence, rate, self.d_max, k_used)
        return self._judge(rate)

    def _judge(self, rate: float) -> Verdict:
        """Count both streaks; each fires on its own, and a nudge wins."""
        threshold, needed = self.suppress
        self._suppress_streak = self._suppress_streak + 1 if rate > threshold else 0
        if self.nudge is not None:
            high, windows, factor = self.nudge
            self._nudge_streak = self._nudge_streak + 1 if rate > high else 0
            if self._nudge_streak >= windows:
                self._nudge_streak = 0
                return nudge_down(factor)
        if self._suppress_streak >= needed:
            self._suppress_streak = 0
            return SUPPRESS_GROWTH
        return STABLE

    def state(self) -> GuardState:
        """Return the rate with its memory, and the streaks."""
        return {
            **dataclasses.asdict(self._rate),
            "suppress_streak": self._suppress_streak,
            "nudge_streak": self._nudge_streak,
        }

    def load(self, state: GuardState) -> None:
        """Take over what ``state`` returned."""
        rate = {field.name: state[field.name] for field in dataclasses.fields(DriftRate)}
        self._rate = DriftRate(**rate)  # type: ignore[arg-type]
        self._suppress_streak = int(str(state["suppress_streak"]))
        self._nudge_streak = int(str(state["nudge_streak"]))

    def telemetry(self) -> dict[str, float]:
        """Return the raw and the smoothed rate, where there is one."""
        return self._rate.telemetry()

    def reset(self) -> None:
        """Forget every window seen so far."""
        self._rate = DriftRate(alpha=self._rate.alpha, noise_floor=self._rate.noise_floor)
        self._suppress_streak = self._nudge_streak = 0


def _closed_form(divergence: float, rate: float, d_max: float, steps: int) -> Verdict:
    """Return the verdict that moves the window to ``ln(d_max / D) / rate`` steps."""
    longest = min(MOST_STEPS, 2 * steps)
    if rate <= 0:
        wanted = longest if divergence < d_max else steps
    else:
        wanted = math.floor(math.log(d_max / divergence) / rate)
    wanted = max(1, steps // 2, min(wanted, longest))
    return STABLE if wanted >= steps else nudge_down(wanted / steps)
