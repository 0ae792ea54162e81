"""A simulated rank: it answers the controller as a rank does, batch by batch in one go.

Batches until the next point at which anything can happen are drawn at once; when something
happens earlier, those that were not done by then are taken back.
"""

from __future__ import annotations

import bisect
import random
from dataclasses import dataclass, field

from flodl.distributed.protocol.messages import Lease
from flodl.distributed.protocol.ranges import length
from flodl.distributed.protocol.values import Target, Trained


@dataclass(kw_only=True, slots=True)
class SimulatedLease:
    """A lease and how far it is trained."""

    lease: Lease
    samples: int
    batches: int
    """Whole lease."""
    done: int = 0
    """Batches trained."""

    def progress(self) -> Trained:
        """Return how far it is trained."""
        samples = min(self.samples, self.done * self.lease.batch_size)
        return Trained(lease_id=self.lease.lease_id, batches=self.done, samples=samples)


@dataclass(kw_only=True, slots=True)
class SimulatedRank:
    """State of one rank."""

    uid: str
    host: str
    ms: float
    jitter: float
    rng: random.Random
    leases: list[SimulatedLease] = field(default_factory=list)
    target: Target | None = None
    window: int = 0
    version: int = 0
    clock: float = 0.0
    """Until when its batches are drawn."""
    ends: list[float] = field(default_factory=list)
    """When each batch since the last average ends."""
    took: list[float] = field(default_factory=list)
    """Milliseconds of each of them."""
    carried: int = 0
    """Batches of windows that came to nothing; they go into the next average."""
    carried_ms: float = 0.0
    turn: int = 0
    """Counts changes of plan: what was scheduled under an older one does not happen."""
    asked: int = 0
    is_arriving: bool = False
    """Whether it is known when it will come to the barrier, or it is there."""
    is_dead: bool = False
    steps: int = 0
    """Batches that were averaged."""
    busy: float = 0.0
    """Seconds spent on batches."""

    def take(self, lease: Lease) -> None:
        """Put a lease behind the others."""
        samples = length(lease.ranges)
        self.leases.append(
            SimulatedLease(lease=lease, samples=samples, batches=-(-samples // lease.batch_size))
        )

    @property
    def available(self) -> int:
        """Batches in hand that are not drawn yet."""
        total = sum(held.batches - held.done for held in self.leases)
        return total - len(self.ends)

    def draw(self, now: float) -> bool:
        """Draw batches up to the target or the last lease; returns whether it is reached."""
        target = self.target
        if target is None or self.is_arriving:
            return False
        self.clock = max(self.clock, now)
        left, ends, durations, gauss = self.available, self.ends, self.took, self.rng.gauss
        steps = self.carried + len(ends)
        spent = self.carried_ms + sum(durations)
        while not _is_reached(target, steps, spent):
            if left == 0:
                return target.at_end
            took = self.ms * max(0.2, gauss(1.0, self.jitter))
            self.clock += took / 1000
            ends.append(self.clock)
            durations.append(took)
            spent += took
            steps += 1
            left -= 1
        return True

    def half_time(self) -> tuple[int, float] | None:
        """Return the last lease and when half of it is trained, if that is drawn and not asked."""
        if not self.leases or self.asked == self.leases[-1].lease.lease_id:
            return None
        last = self.leases[-1]
        before = sum(held.batches - held.done for held in self.leases[:-1])
        index = before + max(0, (last.batches + 1) // 2 - last.done) - 1
        if index >= len(self.ends):
            return None
        self.asked = last.lease.lease_id
        return last.lease.lease_id, self.ends[index] if index >= 0 else self.clock

    def cut(self, now: float) -> float:
        """Take back batches that have not begun by now; returns when the one at hand ends."""
        begun = bisect.bisect_right(self.ends, now)
        if begun < len(self.ends) and self.ends[begun] - self.took[begun] / 1000 < now:
            begun += 1
        del self.ends[begun:], self.took[begun:]
        self.clock = max(now, self.ends[-1] if self.ends else now)
        self.is_arriving = False
        self.turn += 1
        return self.clock

    def count(self) -> None:
        """Let drawn batches be trained: they are part of what leases report."""
        left = len(self.ends)
        spent = sum(self.took)
        self.busy += spent / 1000
        for held in self.leases:
            done = min(left, held.batches - held.done)
            held.done += done
            left -= done
        self.carried += len(self.ends)
        self.carried_ms += spent
        self.ends.clear()
        self.took.clear()

    def progress(self) -> tuple[Trained, ...]:
        """Return how far each lease is trained."""
        return tuple(held.progress() for held in self.leases if held.done)

    def settle(self) -> None:
        """The average counts: what went into it is done."""
        self.steps += self.carried
        self.carried, self.carried_ms = 0, 0.0
        self.leases = [held for held in self.leases if held.done < held.batches]
        self.is_arriving = False


def _is_reached(target: Target, steps: int, spent_ms: float) -> bool:
    """Return whether a window ends here, as ``lifecycle.work.Tally`` decides it."""
    if target.steps is not None and steps >= target.steps:
        return True
    if target.wall_ms is None or steps == 0:
        return False
    return spent_ms + 0.5 * spent_ms / steps >= target.wall_ms
