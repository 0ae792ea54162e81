"""Averages within a host through shared memory, and between hosts by their leaders.

A member writes its values into a segment of its own and counts up a number; the leader waits for
all numbers, folds in rank order and publishes the average in its segment the same way.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from flodl.distributed.averaging.exchange import Part, Payload, check_weights, fold
from flodl.distributed.averaging.shards import ShardFold
from flodl.distributed.averaging.steps import SteppedExchange, Steps
from flodl.distributed.averaging.wire import Residual, packed, unpacked, wire_dtype
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.formation import Formation
from flodl.distributed.collective.group import Group
from flodl.distributed.collective.segments import Segment

__all__ = ["HostExchange", "HostMemory", "HostShape", "map_host", "own_segment"]

_HEADER_BYTES = 64  # a cache line: two numbers of 8 bytes
_DONE, _IS_FAILED = 0, 1


@dataclass(frozen=True, kw_only=True, slots=True)
class HostShape:
    """Sizes that all ranks of a host agree on."""

    numel: int
    """Of the flat buffer."""
    side: int
    """Numbers that a rank sends aside."""
    rows: int
    """Ranks of the generation: the leader publishes what each sent aside."""

    @property
    def nbytes(self) -> int:
        """Bytes of a segment."""
        return _HEADER_BYTES + self.side_bytes + 4 * max(1, self.numel)

    @property
    def side_bytes(self) -> int:
        """Bytes of the numbers sent aside, in whole cache lines."""
        return -(-8 * self.rows * self.side // _HEADER_BYTES) * _HEADER_BYTES


@final
class HostMemory:
    """One rank's segment as tensors, with the number that says what is in it."""

    def __init__(self, segment: Segment, shape: HostShape) -> None:
        self.segment = segment
        self._numbers = memoryview(segment.map)[:_HEADER_BYTES].cast("Q")
        raw = torch.frombuffer(segment.map, dtype=torch.uint8)
        body = raw[_HEADER_BYTES:]
        rows = body[: 8 * shape.rows * shape.side].view(torch.float64)
        self.sides = rows.view(shape.rows, shape.side)
        self._values = body[shape.side_bytes :]
        self._shape = shape

    def values(self, dtype: torch.dtype) -> Tensor:
        """Return the flat buffer in the dtype that travels."""
        return self._values[: self._shape.numel * dtype.itemsize].view(dtype)

    @property
    def number(self) -> int:
        """How many averages this side has written; read it before what it speaks of."""
        number = self._numbers[_DONE]
        _order_memory()
        return number

    def publish(self, number: int, *, is_failed: bool = False) -> None:
        """Say that everything written so far belongs to average ``number``."""
        self._numbers[_IS_FAILED] = is_failed
        _order_memory()
        self._numbers[_DONE] = number

    @property
    def is_failed(self) -> bool:
        """Whether the writer could not do what the number stands for."""
        return bool(self._numbers[_IS_FAILED])


@final
class HostExchange(SteppedExchange):
    """The leader of each host folds its members' values; leaders then average among themselves.

    Args:
        formation: Who is where.
        shape: Sizes of a segment.
        memory: Segments of this host by rank: the leader holds all, a member its own and the
            leader's.
        leaders: The group of host leaders; ``None`` where there is one host or this rank is none.
        error_feedback: Whether what bfloat16 rounds away is added to the next average.
    """

    def __init__(
        self,
        formation: Formation,
        shape: HostShape,
        memory: dict[int, HostMemory],
        leaders: Group | None,
        *,
        error_feedback: bool = True,
    ) -> None:
        self._formation = formation
        self._memory = memory
        self._leaders = leaders
        self._number = 0
        self.result = torch.zeros(shape.numel)
        self._between: ShardFold | None = None
        self._residual: Residual | None = None
        if leaders is not None:
            self._between = ShardFold(leaders, shape.numel, error_feedback=error_feedback)
        elif formation.is_leader:
            self._residual = Residual(shape.numel, is_on=error_feedback)

    def residual(self) -> Tensor | None:
        """See `Exchange`."""
        holder = self._between.residual if self._between is not None else self._residual
        return None if holder is None else holder.values

    def close(self) -> None:
        """See `Exchange`."""
        self._running = None
        if self._leaders is not None:
            self._leaders.abandon()
        self._memory = {}

    def _average(self, payload: Payload) -> Steps[None]:
        self._number += 1
        if self._formation.is_leader:
            try:
                yield from self._lead(payload)
            except CollectiveError:
                self._own.publish(self._number, is_failed=True)
                raise
        else:
            yield from self._follow(payload)

    @property
    def _own(self) -> HostMemory:
        return self._memory[self._formation.rank]

    def _follow(self, payload: Payload) -> Steps[None]:
        dtype = wire_dtype(payload.wire)
        own, leader = self._own, self._memory[self._formation.host_ranks[0]]
        own.sides[0].copy_(payload.side)
        self.bytes_out = 0
        if payload.values is not None:
            packed(payload.values, own.values(dtype))
            self.bytes_out = own.values(dtype).nbytes
        own.publish(self._number)
        while leader.number < self._number:
            yield
        if leader.is_failed:
            raise CollectiveError("the leader of this host could not average; its error says why")
        unpacked(leader.values(dtype), self.result)
        self.sides = leader.sides.clone()
        self.bytes_in = leader.values(dtype).nbytes

    def _lead(self, payload: Payload) -> Steps[None]:
        dtype, members = wire_dtype(payload.wire), self._formation.host_ranks[1:]
        while any(self._memory[rank].number < self._number for rank in members):
            yield
        self.sides = yield from self._gather(payload.side)
        weights = [1.0] * len(self.sides) if payload.is_sum else check_weights(self.sides)
        self._fold(payload, dtype, weights)
        published = self._own.values(dtype)
        self.bytes_out = published.nbytes
        self.bytes_in = len(members) * published.nbytes
        if self._between is not None:
            yield from self._average_hosts(payload)
        if self._residual is not None:
            self._residual.packed(self.result, published)
        else:
            packed(self.result, published)
        self._own.sides.copy_(self.sides)
        self._own.publish(self._number)
        unpacked(published, self.result)

    def _gather(self, own: Tensor) -> Steps[Tensor]:
        """Return what every rank of the generation sent aside, by rank."""
        ranks = self._formation.host_ranks
        rows = torch.stack([own, *(self._memory[rank].sides[0] for rank in ranks[1:])])
        if self._between is None:
            return rows
        hosts = [self._formation.ranks_of(leader) for leader in self._formation.leaders]
        padded = torch.zeros(max(map(len, hosts)), own.numel(), dtype=own.dtype)
        padded[: len(rows)] = rows
        gathered = yield from self._between.gather(padded.view(-1))
        sides = rows.new_zeros(self._formation.world_size, own.numel())
        for host, flat in zip(hosts, gathered, strict=True):
            sides[list(host)] = flat.view(padded.shape)[: len(host)]
        return sides

    def _fold(self, payload: Payload, dtype: torch.dtype, weights: Sequence[float]) -> None:
        """Leave this host's share of the average in `result`."""
        ranks = self._formation.host_ranks
        own = torch.zeros(0, dtype=dtype) if payload.values is None else payload.values
        if own.dtype is not dtype:
            narrow = torch.empty(own.shape, dtype=dtype)
            packed(own, narrow)
            own = narrow
        rows = [own, *(self._memory[rank].values(dtype) for rank in ranks[1:])]
        for part in payload.parts:
            here = part.weights(weights)
            pieces = [row[part.start : part.stop] for row in rows]
            fold(pieces, [here[rank] for rank in ranks], self.result[part.start : part.stop])

    def _average_hosts(self, payload: Payload) -> Steps[None]:
        assert self._between is not None
        whole = (Part(0, self.result.numel()),)
        ones = [1.0] * len(self._formation.leaders)
        yield from self._between.average(self.result, whole, ones, payload.wire)
        self.result.copy_(self._between.result)
        self.bytes_out += self._between.bytes_moved
        self.bytes_in += self._between.bytes_moved


def own_segment(
    formation: Formation, shape: HostShape, *, prefix: str, folders: Sequence[Path]
) -> Segment:
    """Make this rank's segment; the caller takes its name away when `map_host` is over.

    Raises:
        CollectiveError: There is no room.
    """
    name = f"{prefix}-g{formation.generation}-r{formation.rank}-{secrets.token_hex(4)}"
    return Segment.create(name, shape.nbytes, folders)


def map_host(
    formation: Formation, shape: HostShape, own: Segment, store: Store
) -> dict[int, HostMemory]:
    """Map the segments of this host's other ranks; returns when they have mapped this one's.

    Raises:
        CollectiveError: The ranks disagree about sizes.
    """
    leader, *members = formation.host_ranks
    others = members if formation.is_leader else [leader]

    def key(rank: int, what: str) -> str:
        return f"{formation.prefix('segment')}/{rank}/{what}"

    memory = {formation.rank: HostMemory(own, shape)}
    store.set(key(formation.rank, "path"), str(own.path))
    for rank in others:
        path = Path(os.fsdecode(store.get(key(rank, "path"))))
        memory[rank] = HostMemory(Segment.attach(path, shape.nbytes), shape)
    store.set(key(formation.rank, "mapped"), "1")
    store.wait([key(rank, "mapped") for rank in others])
    return memory


_barrier = threading.Lock()


def _order_memory() -> None:
    """Keep writes before it before those after it, and reads likewise, as other processes see them.

    Taking a lock again after letting go of it does so on every processor.
    """
    for _ in range(2):
        with _barrier:
            pass
