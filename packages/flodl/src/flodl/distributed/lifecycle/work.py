"""The work a rank has in hand: its leases, and what it did since the last average."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from flodl.distributed.protocol import schema
from flodl.distributed.protocol.messages import Lease
from flodl.distributed.protocol.ranges import joined, length
from flodl.distributed.protocol.values import Ranges, Target, Trained


@dataclass(kw_only=True, slots=True)
class LeaseInHand:
    """One lease and how far it is trained."""

    lease: Lease
    samples: int
    trained: int = 0
    batches: int = 0
    marked: int = 0
    """What of it goes into the window that is being averaged."""

    @property
    def is_trained(self) -> bool:
        """Whether all of it is trained."""
        return self.trained >= self.samples

    @property
    def is_half_trained(self) -> bool:
        """Whether the next lease should come."""
        return 2 * self.trained >= self.samples

    def progress(self) -> Trained:
        """Return how far it is trained."""
        return Trained(lease_id=self.lease.lease_id, batches=self.batches, samples=self.trained)


@dataclass(kw_only=True, slots=True)
class Tally:
    """What was done since the last average."""

    steps: int = 0
    samples: int = 0
    wall_ms: float = 0.0
    delivered_ms: float = 0.0
    is_delivered_known: bool = True
    fill_ms: float = 0.0
    left_out: Ranges = ()
    """Steps of it, from 0, that all ranks left out: their gradients were not finite."""

    def add(
        self, samples: int, wall_ms: float, delivered_ms: float | None, *, is_first: bool
    ) -> None:
        """Add one batch."""
        self.steps += 1
        self.samples += samples
        self.wall_ms += wall_ms
        if delivered_ms is None:
            self.is_delivered_known = False
        elif is_first:
            self.fill_ms += max(0.0, delivered_ms - wall_ms)
            self.delivered_ms += wall_ms
        else:
            self.delivered_ms += delivered_ms

    def leave_out(self, count: int) -> None:
        """Note that all ranks left out the last ``count`` steps."""
        first = max(0, self.steps - count)
        self.left_out = joined((*self.left_out, (first, self.steps)))

    @property
    def spent_ms(self) -> float:
        """Time that the batches took, data wait included where that is known."""
        return self.delivered_ms if self.is_delivered_known else self.wall_ms

    def merged(self, later: Tally) -> Tally:
        """Return both as one, when the average between them came to nothing."""
        return Tally(
            steps=self.steps + later.steps,
            samples=self.samples + later.samples,
            wall_ms=self.wall_ms + later.wall_ms,
            delivered_ms=self.delivered_ms + later.delivered_ms,
            is_delivered_known=self.is_delivered_known and later.is_delivered_known,
            fill_ms=self.fill_ms + later.fill_ms,
            left_out=(
                *self.left_out,
                *((self.steps + start, self.steps + stop) for start, stop in later.left_out),
            ),
        )

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Tally:
        """Return the tally whose fields are given as plain values."""
        left_out = tuple((start, stop) for start, stop in state.get("left_out", ()))
        return cls(**{**state, "left_out": left_out})

    def has_reached(self, target: Target, *, has_work: bool) -> bool:
        """Return whether the window ends here.

        Time ends it at the boundary that is nearest: when half of another batch would be too much.
        """
        if target.steps is not None and self.steps >= target.steps:
            return True
        if target.at_end and not has_work:
            return True
        if target.wall_ms is None or self.steps == 0:
            return False
        return self.spent_ms + 0.5 * self.spent_ms / self.steps >= target.wall_ms


@dataclass(kw_only=True, slots=True)
class WorkInHand:
    """Leases in the order in which they are trained, and the tally of the open window."""

    leases: list[LeaseInHand] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    marked: Tally | None = None
    """Of the snapshot that is being averaged while training goes on."""
    asked: int | None = None
    """The lease after which the next one was asked for."""

    def take(self, lease: Lease) -> bool:
        """Put a lease behind the others; returns whether it is new."""
        if any(held.lease.lease_id == lease.lease_id for held in self.leases):
            return False
        self.leases.append(LeaseInHand(lease=lease, samples=length(lease.ranges)))
        return True

    def drop(self) -> None:
        """Forget leases and tally: the work belongs to others."""
        self.leases.clear()
        self.tally, self.marked, self.asked = Tally(), None, None

    @property
    def has_work(self) -> bool:
        """Whether something is left to train."""
        return any(not held.is_trained for held in self.leases)

    def train(self, lease_id: int, samples: int) -> None:
        """Count a trained batch of a lease."""
        for held in self.leases:
            if held.lease.lease_id == lease_id:
                held.trained = min(held.samples, held.trained + samples)
                held.batches += 1

    def next_wanted(self) -> Trained | None:
        """Return how far the last lease is when the next one should be asked for, once.

        That is when half of it is trained, or when only the batch at hand is left: the answer is
        on its way while that is trained.
        """
        if not self.leases:
            return None
        last = self.leases[-1]
        left = sum(held.samples - held.trained for held in self.leases)
        is_due = last.is_half_trained or left <= last.lease.batch_size
        if self.asked == last.lease.lease_id or not is_due:
            return None
        self.asked = last.lease.lease_id
        return last.progress()

    def progress(self) -> tuple[Trained, ...]:
        """Return how far each lease is trained."""
        return tuple(held.progress() for held in self.leases if held.trained)

    def mark(self, *, goes_on: bool) -> None:
        """Note what goes into the average; with ``goes_on`` a new tally begins."""
        for held in self.leases:
            held.marked = held.trained
        if goes_on:
            self.marked, self.tally = self.tally, Tally()

    def hold_back(self) -> None:
        """Give nothing to the average: all that was trained goes into the next one."""
        self.void()
        for held in self.leases:
            held.marked = 0
        self.marked = Tally()

    def settle(self) -> None:
        """The average counts: what went into it is done."""
        if self.marked is None:
            self.tally = Tally()
        self.marked = None
        self.leases = [held for held in self.leases if held.marked < held.samples]

    def void(self) -> None:
        """The average came to nothing: what went into it goes into the next one."""
        if self.marked is not None:
            self.tally, self.marked = self.marked.merged(self.tally), None

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return {
            "leases": [
                {**dataclasses.asdict(held), "lease": schema.write(held.lease)}
                for held in self.leases
            ],
            "tally": dataclasses.asdict(self.tally),
            "marked": None if self.marked is None else dataclasses.asdict(self.marked),
            "asked": self.asked,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> WorkInHand:
        """Return the work that ``to_state`` described."""
        leases = [
            LeaseInHand(**{**item, "lease": schema.read(Lease, item["lease"])})
            for item in state["leases"]
        ]
        marked = state["marked"]
        return cls(
            leases=leases,
            tally=Tally.from_state(state["tally"]),
            marked=None if marked is None else Tally.from_state(marked),
            asked=state["asked"],
        )
