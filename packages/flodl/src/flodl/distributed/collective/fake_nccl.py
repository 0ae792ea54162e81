"""Communicators that work on CPU tensors of one process, for tests of what drives the real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor

from flodl.distributed.collective.comms import (
    AbortHandle,
    Comms,
    RankComm,
    ReduceOp,
    check_tensors,
)
from flodl.distributed.collective.errors import NcclAborted, NcclError

__all__ = ["FakeNcclComms", "FakeNcclRankComm"]

CPU = torch.device("cpu")
_DTYPES = (
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.bfloat16,
)


@final
class FakeNcclComms(Comms):
    """All ranks of a communicator over CPU tensors.

    Args:
        devices: One for each rank; all count as the CPU.
    """

    def __init__(self, devices: Sequence[object]) -> None:
        if not devices:
            raise NcclError("devices []: must be one or more")
        self.devices = (CPU,) * len(devices)
        self._is_whole = True

    def all_reduce(self, tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.Sum) -> None:
        """See `Comms`."""
        self._check(tensors)
        _reduce(tensors, op)

    def broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """See `Comms`."""
        self._check(tensors)
        _spread(tensors, root)

    def split(self) -> list[FakeNcclRankComm]:
        """See `Comms`."""
        self._need_whole()
        self._is_whole = False
        meeting = _Meeting(self.size)
        return [FakeNcclRankComm(meeting, rank) for rank in range(self.size)]

    def close(self) -> None:
        """Let go; does nothing once split or closed."""
        self._is_whole = False

    def _check(self, tensors: Sequence[Tensor]) -> None:
        self._need_whole()
        check_tensors(tensors, self.devices, _DTYPES)

    def _need_whole(self) -> None:
        if not self._is_whole:
            raise NcclError(
                "this communicator was split or closed", hint="use the ranks that split() gave"
            )


@final
class FakeNcclRankComm(RankComm, AbortHandle):
    """One rank of a split communicator, to be used on a thread of its own."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self.rank, self.size, self.device = rank, meeting.size, CPU
        self._meeting = meeting
        self._aborted = threading.Event()

    def all_reduce(self, tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.Sum) -> None:
        """See `RankComm`."""
        for tensor in tensors:
            self._meet(tensor, lambda rows: _reduce(rows, op))

    def broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """See `RankComm`."""
        for tensor in tensors:
            self._meet(tensor, lambda rows: _spread(rows, root))

    def abort_handle(self) -> AbortHandle:
        """See `RankComm`."""
        return self

    @property
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._aborted.is_set()

    def abort(self) -> None:
        """Let waiting calls raise `NcclAborted`, and later ones too; a second call does nothing."""
        self._aborted.set()
        self._meeting.wake()

    def close(self) -> None:
        """Let go; does nothing once closed or aborted."""
        self._aborted.set()

    def _meet(self, tensor: Tensor, together: Callable[[Sequence[Tensor]], None]) -> None:
        check_tensors([tensor], [CPU], _DTYPES)
        self._meeting.meet(self.rank, tensor, together, self._aborted)


class _Meeting:
    """Lets the last rank that comes do the work of all."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._here: dict[int, Tensor] = {}
        self._round = 0

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def meet(
        self,
        rank: int,
        tensor: Tensor,
        together: Callable[[Sequence[Tensor]], None],
        aborted: threading.Event,
    ) -> None:
        with self._changed:
            if aborted.is_set():
                raise NcclAborted(f"rank {rank} of {self.size}: the communicator was aborted")
            number = self._round
            self._here[rank] = tensor
            if len(self._here) == self.size:
                rows = [self._here[k] for k in range(self.size)]
                self._here = {}
                self._round += 1
                self._changed.notify_all()
                check_tensors(rows, [CPU] * self.size, _DTYPES)
                together(rows)
                return
            self._changed.wait_for(lambda: self._round != number or aborted.is_set())
            if self._round == number:
                del self._here[rank]
                raise NcclAborted(f"rank {rank} of {self.size}: the communicator was aborted")


@torch.no_grad()
def _reduce(rows: Sequence[Tensor], op: ReduceOp) -> None:
    together = torch.stack(list(rows))
    reducers: dict[ReduceOp, Callable[[], Tensor]] = {
        ReduceOp.Sum: lambda: together.sum(0, dtype=together.dtype),
        ReduceOp.Prod: lambda: together.prod(0, dtype=together.dtype),
        ReduceOp.Max: lambda: together.amax(0),
        ReduceOp.Min: lambda: together.amin(0),
        ReduceOp.Avg: lambda: together.sum(0, dtype=together.dtype) / len(rows),
    }
    result = reducers[op]()
    for row in rows:
        row.copy_(result)


@torch.no_grad()
def _spread(rows: Sequence[Tensor], root: int) -> None:
    if not 0 <= root < len(rows):
        raise NcclError(f"root={root}: must be one of 0 to {len(rows) - 1}")
    for row in rows:
        row.copy_(rows[root])
