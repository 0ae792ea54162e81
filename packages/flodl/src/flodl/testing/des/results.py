"""What a simulation found."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerCost:
    """Processor time of the controller; measured, so it differs from run to run."""

    seconds: float
    mean_us: float
    """Of one event."""
    p99_us: float
    per_window_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationResult:
    """Figures of one simulated run."""

    ranks: int
    seconds: float
    """Simulated time from the first batch to the last average."""
    efficiency: float
    """Ideal time over ``seconds``; the ideal is batches over the sum of speeds."""
    utilization: float
    """Part of the time of living ranks that was spent on batches."""
    batches: int
    windows: int
    void_windows: int
    generations: int
    deaths: int
    longest_recovery: float
    """Seconds from a death being seen to training again; 0 without deaths."""
    events: int
    """Messages that reached the controller."""
    sent: int
    """Messages that the controller sent, one per host where a host passes it on."""
    control_bytes: float
    """Of both, estimated from one message of each kind."""
    reduce_bytes: float
    """Bytes of averages that passed through the controller."""
    records: int
    """Rows that went into the record tree, one for each rank and window."""
    state_bytes: int
    """Size of what the controller knows at the end, written down as JSON."""
    accounting: list[dict[str, Any]]
    rank_steps: list[int]
    """Committed batches of each rank."""
    controller: ControllerCost

    @property
    def is_exact(self) -> bool:
        """Whether every sample of every epoch was committed once."""
        return all(
            account["committed"] + account["dropped"] + account["skipped_nonfinite"]
            == account["total"]
            for account in self.accounting
        )

    @property
    def batches_per_second(self) -> float:
        """Batches of all ranks."""
        return self.batches / self.seconds

    @property
    def idle(self) -> float:
        """Part of the time of living ranks in which they waited."""
        return 1 - self.utilization

    @property
    def records_per_second(self) -> float:
        """Rows for the record tree."""
        return self.records / self.seconds

    @property
    def state_bytes_per_rank(self) -> float:
        """What the controller knows, for each rank."""
        return self.state_bytes / self.ranks

    @property
    def messages_per_second(self) -> float:
        """Control messages of the controller, in and out."""
        return (self.events + self.sent) / self.seconds

    @property
    def bytes_per_rank_second(self) -> float:
        """Control bytes of the controller for each rank and second."""
        return self.control_bytes / self.seconds / self.ranks

    def digest(self) -> str:
        """Return a hash of everything that the seed decides."""
        plain = dataclasses.asdict(self)
        del plain["controller"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
