"""What a guard of convergence is told after each window, and what it may say about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

GuardState: TypeAlias = dict[str, float | int | list[float] | None]


class VerdictKind(StrEnum):
    """How a window's divergence bears on the cadence, mildest first."""

    STABLE = "stable"
    SUPPRESS_GROWTH = "suppress_growth"
    NUDGE_DOWN = "nudge_down"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A judgment on one window."""

    kind: VerdictKind
    factor: float = 1.0
    """What the anchor is multiplied by; of a nudge only."""


STABLE = Verdict(kind=VerdictKind.STABLE)
"""The window was fine: a proposed growth may be committed."""

SUPPRESS_GROWTH = Verdict(kind=VerdictKind.SUPPRESS_GROWTH)
"""The ranks drift apart: no growth until several windows were stable."""


def nudge_down(factor: float) -> Verdict:
    """Return the verdict that shrinks the anchor to ``factor`` of itself."""
    return Verdict(kind=VerdictKind.NUDGE_DOWN, factor=factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class DivergenceReport:
    """How far the ranks had drifted from their consensus at the end of one window."""

    window: int
    divergence: float
    """Largest over ranks of ``||p_k - c|| / ||c||``."""
    deltas: dict[str, float]
    """The same of each member, by uid."""
    pre_norms: dict[str, float]
    """``||p_k||`` of each member."""
    post_norm: float
    """``||c||``."""


class ConvergenceGuard(Protocol):
    """Decides whether the cadence may grow; users may write their own."""

    def report(self, report: DivergenceReport, k_used: int, k_max: int) -> Verdict:
        """Return the verdict on a window.

        Args:
            report: Divergence of the window.
            k_used: Steps of the anchor's rank in it.
            k_max: Largest number of steps that a rank took in it.
        """
        ...

    def state(self) -> GuardState:
        """Return plain values from which ``load`` restores the guard."""
        ...

    def load(self, state: GuardState) -> None:
        """Take over what ``state`` returned."""
        ...

    def telemetry(self) -> dict[str, float]:
        """Return numbers worth recording for the window just reported."""
        ...

    def reset(self) -> None:
        """Forget every window seen so far."""
        ...
