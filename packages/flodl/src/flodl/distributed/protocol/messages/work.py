"""How work is handed out, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass

from flodl.distributed.protocol.values import Ranges, RankProgress


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Controller to rank: a part of an epoch to train, behind what it holds already."""

    lease_id: int
    epoch: int
    """Epoch as people count it."""
    data_epoch: int
    """Pass over the data whose order the ranges are positions of; differs with splits."""
    ranges: Ranges
    batch_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseAck:
    """Rank to controller: the lease is half trained or on its last batch; the next is welcome."""

    lease_id: int
    batches: int
    """Batches of it trained so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Host to controller: its ranks, at most twice a second."""

    ranks: tuple[RankProgress, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Throttle:
    """Controller to rank: take no batch until ``Resume`` or the next ``Commit``."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resume:
    """Controller to rank: take batches again."""

    reason: str
