"""How a window between two averages ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from flodl.distributed.config.modes import Payload
from flodl.distributed.protocol.values import Ranges, Target, Telemetry, Trained


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncNow:
    """Controller to ranks: end the window when the target is reached; a later one replaces it.

    With gradients the target is a number of steps that all ranks take together, also those that
    have run out of leases.
    """

    window: int
    payload: Payload
    target: Target


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowReport:
    """Rank to controller: what it did in the window; comes before ``AtBarrier``.

    With gradients it also comes every 50 steps or once a second, times and telemetry are those
    since the one before, and no barrier follows: the work of each completed step counts already.
    """

    window: int
    trained: tuple[Trained, ...]
    """Of each lease that was touched, counted from the lease's start."""
    steps: int
    """Steps taken in this window; with gradients also those without a batch of one's own."""
    wall_ms: float
    """Compute time of those batches."""
    delivered_ms: float | None = None
    """Data wait, compute and transport of them; ``None`` where that was not measured."""
    fill_ms: float = 0.0
    """Time to the first batch of a chunk."""
    left_out: Ranges = ()
    """Steps, counted from the report before, that all ranks left out (gradients)."""
    is_finite: bool = True
    payload_hash: str = ""
    """Digest of size in bytes, dtype and names of what it would send."""
    telemetry: Telemetry = field(default_factory=Telemetry)


@dataclass(frozen=True, kw_only=True, slots=True)
class AtBarrier:
    """Rank to controller: its payload is ready; it starts no collective before ``ReduceGo``."""

    window: int
    samples: int
    """Samples trained since the last average."""
    is_finite: bool
    payload_hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceGo:
    """Controller to ranks: everyone is ready, start the collective."""

    window: int
    total_weight: float
    """Sum over members that count of ``samples ** gamma``."""
    gamma: float
    participants: int
    deadline: float
    """Seconds from now after which it counts as stalled."""
    excluded: tuple[str, ...] = ()
    """Members whose payload counts for nothing; they take part and take over the result."""
    late: tuple[str, ...] = ()
    """Members that are not waited for: likewise; what they trained counts for a later window."""

    def weight(self, uid: str, samples: int) -> float:
        """Return the share of a member in the average; shares of all members add up to one."""
        if samples == 0 or uid in self.excluded or uid in self.late:
            return 0.0
        return float(samples**self.gamma) / self.total_weight


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduced:
    """Rank to controller: it has taken over the result of the window, or could not."""

    window: int
    ok: bool = True
    ms: float = 0.0
    delta: float | None = None
    """``||p_k - c|| / ||c||``; ``None`` where it was not measured."""
    pre_norm: float | None = None
    post_norm: float | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """Controller to ranks: the window's work counts, and this is how the next one ends."""

    window: int
    global_step: int
    """Committed batches of all ranks."""
    next_window: int
    target: Target | None
    """When the next window ends, as a ``SyncNow`` for it; ``None``: wait for what follows."""
    payload: Payload
    anchor: int
    lr_scale: float
