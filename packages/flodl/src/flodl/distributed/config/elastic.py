"""How the set of ranks may change while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flodl.distributed.config.checks import one_of, positive, raise_for, whole


@dataclass(frozen=True, kw_only=True, slots=True)
class ElasticConfig:
    """Whether ranks may leave, come back and join, and how long a run waits for them.

    Raises:
        ConfigError: A value is out of range; the message lists all of them.
    """

    min_ranks: int = 1
    """Fewer ranks than this hold the run until others join."""
    max_ranks: int | None = None
    rejoin: bool = True
    """Whether a lost member, or a new one, may join a run that is going on."""
    respawn: int = 2
    """Times per hour that a rank is started again after a death that no user code caused."""
    controller_grace: float = 120.0
    """Seconds that ranks wait for a lost controller, and a controller for a lost launcher."""
    on_user_exception: Literal["fail", "evict"] = "fail"
    quorum_wait: float = 600.0
    """Seconds that a run below ``min_ranks`` waits for others."""
    join_optimizer: Literal["donor", "fresh"] = "donor"
    grow_interval: float = 10.0
    """Least seconds between two generations that only add members."""
    durable_every: int | None = None
    """Windows between two copies of the consensus outside the ranks; ``None``: 1, nccl 10."""

    def __post_init__(self) -> None:
        raise_for(
            [
                *whole("min_ranks", self.min_ranks, 1),
                *whole("max_ranks", self.max_ranks, 1, optional=True),
                *whole("respawn", self.respawn, 0),
                *positive("controller_grace", self.controller_grace),
                *positive("quorum_wait", self.quorum_wait),
                *positive("grow_interval", self.grow_interval),
                *one_of("on_user_exception", self.on_user_exception, ("fail", "evict")),
                *one_of("join_optimizer", self.join_optimizer, ("donor", "fresh")),
                *whole("durable_every", self.durable_every, 1, optional=True),
                *self._order(),
            ]
        )

    def _order(self) -> list[str]:
        if self.max_ranks is None or self.max_ranks >= self.min_ranks:
            return []
        return [f"max_ranks={self.max_ranks}: must be at least min_ranks={self.min_ranks}"]
