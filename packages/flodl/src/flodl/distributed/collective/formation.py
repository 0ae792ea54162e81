"""What a rank is told about one generation: who is in it, and how they reach each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from flodl.core.errors import ConfigError

__all__ = ["Formation", "Seat", "Topology"]

Topology: TypeAlias = Literal["flat", "two_level"]
"""``two_level``: shared memory within a host, a group of host leaders between hosts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """One member's place in a generation."""

    uid: str
    rank: int
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Formation:
    """One generation as one of its ranks sees it.

    Raises:
        ConfigError: The seats are not ranks 0 to W-1 in order, or the own rank is not among them.
    """

    run: str
    nonce: str
    generation: int
    rank: int
    seats: tuple[Seat, ...]
    topology: Topology = "flat"
    address: str = "127.0.0.1"
    """Address of this host's data interface, on which groups listen."""
    timeout_s: float = 60.0
    """How long formation, and any operation of the groups, may take."""

    def __post_init__(self) -> None:
        ranks = [seat.rank for seat in self.seats]
        if ranks != list(range(len(ranks))) or not ranks:
            raise ConfigError(f"seats have ranks {ranks}: must be 0 to W-1 in order")
        if not 0 <= self.rank < len(ranks):
            raise ConfigError(f"rank={self.rank}: must be one of the ranks 0 to {len(ranks) - 1}")

    @classmethod
    def of_size(
        cls, world_size: int, rank: int, *, run: str = "local", generation: int = 1
    ) -> Formation:
        """Return a generation of ``world_size`` members on this host."""
        seats = tuple(Seat(uid=f"local/cpu/{k}", rank=k, host="local") for k in range(world_size))
        return cls(run=run, nonce="0", generation=generation, rank=rank, seats=seats)

    @property
    def world_size(self) -> int:
        """Number of members."""
        return len(self.seats)

    @property
    def seat(self) -> Seat:
        """This rank's own."""
        return self.seats[self.rank]

    @property
    def host_ranks(self) -> tuple[int, ...]:
        """Ranks on this rank's host, rising."""
        return self.ranks_of(self.rank)

    def ranks_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks on the host of a rank, rising."""
        host = self.seats[rank].host
        return tuple(seat.rank for seat in self.seats if seat.host == host)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each host, rising."""
        first: dict[str, int] = {}
        for seat in self.seats:
            first.setdefault(seat.host, seat.rank)
        return tuple(first.values())

    @property
    def is_leader(self) -> bool:
        """Whether this rank folds for its host."""
        return self.rank in self.leaders

    def prefix(self, group: str) -> str:
        """Return the prefix of a group's keys in the store."""
        return f"{self.run}/{self.nonce}/{self.generation}/{group}"
