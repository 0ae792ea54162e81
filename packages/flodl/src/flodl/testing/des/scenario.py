"""What is simulated: how many ranks, how fast each, what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig
from flodl.distributed.config.checks import is_number, is_whole
from flodl.testing.des.costs import Cluster, ReduceCost

SpeedProfile = Literal["equal", "lognormal", "two_classes", "straggler"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One simulated run.

    Raises:
        ConfigError: A number is out of range.
    """

    ranks: int = 8
    batches_per_rank: int = 2000
    """Of all epochs together, on average over ranks."""
    epochs: int = 1
    base_ms: float = 100.0
    """Median time of a batch."""
    profile: SpeedProfile = "lognormal"
    sigma: float = 0.3
    """Of ``ln`` of a rank's speed, with ``"lognormal"``."""
    jitter: float = 0.05
    """Standard deviation of a batch's time, as a part of it."""
    batch_ms: Sequence[float] | None = None
    """Times of the ranks instead of a profile."""
    throttle_at: float | None = None
    """Part of the ideal time after which rank 0 takes three times as long."""
    deaths: int = 0
    """Ranks that die at random times, for good."""
    config: ElCheConfig = field(default_factory=ElCheConfig.cpu_cadence)
    reduce: ReduceCost = field(default_factory=ReduceCost)
    ranks_per_host: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("ranks", "batches_per_rank", "epochs", "ranks_per_host"):
            if not is_whole(getattr(self, name), 1):
                raise ConfigError(f"{name}={getattr(self, name)!r}: must be 1 or more")
        if self.config.payload != "params":
            raise ConfigError(
                f"config={self.config.mode}: only modes that average parameters at a barrier are "
                "simulated"
            )
        if not 0 <= self.deaths < self.ranks:
            raise ConfigError(f"deaths={self.deaths}: at least one of {self.ranks} must live")
        if not is_number(self.base_ms, above=0):
            raise ConfigError(f"base_ms={self.base_ms!r}: must be a positive number")
        if self.batch_ms is not None and len(self.batch_ms) != self.ranks:
            raise ConfigError(f"batch_ms has {len(self.batch_ms)} times for {self.ranks} ranks")

    @property
    def cluster(self) -> Cluster:
        """How ranks are spread."""
        return Cluster(ranks=self.ranks, ranks_per_host=self.ranks_per_host)

    def times(self, rng: random.Random) -> list[float]:
        """Return the milliseconds that a batch takes on each rank, without jitter."""
        if self.batch_ms is not None:
            return list(self.batch_ms)
        return [self.base_ms * slow for slow in _PROFILES[self.profile](self, rng)]

    def ideal_seconds(self, times: Sequence[float]) -> float:
        """Return the time of the run if no rank ever waited: batches over the sum of speeds."""
        total = self.ranks * self.batches_per_rank
        return total / sum(1000 / ms for ms in times)


def _equal(scenario: Scenario, rng: random.Random) -> list[float]:  # noqa: ARG001
    return [1.0] * scenario.ranks


def _lognormal(scenario: Scenario, rng: random.Random) -> list[float]:
    return [rng.lognormvariate(0.0, scenario.sigma) for _ in range(scenario.ranks)]


def _two_classes(scenario: Scenario, rng: random.Random) -> list[float]:  # noqa: ARG001
    return [2.5 if rank % 2 else 1.0 for rank in range(scenario.ranks)]


def _straggler(scenario: Scenario, rng: random.Random) -> list[float]:  # noqa: ARG001
    return [10.0 if rank == 0 else 1.0 for rank in range(scenario.ranks)]


_PROFILES: dict[SpeedProfile, Callable[[Scenario, random.Random], list[float]]] = {
    "equal": _equal,
    "lognormal": _lognormal,
    "two_classes": _two_classes,
    "straggler": _straggler,
}
