"""What the ranks of a run write down while they train, and how it is read afterwards.

Steps and copies of the model go to files at once, so that a run can be ended at any moment.
Evaluation comes after the run, from the copies, and takes no time of it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ddp_bench.scaling.slow import Paced
from ddp_bench.scaling.task import Task

_STEP = struct.Struct("=dddI")
_TIME = struct.Struct("=d")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of one rank."""

    started: float
    padded: float
    wanted: float
    samples: int


class Recorder:
    """Writes the steps of one rank, and copies of the model.

    Args:
        task: Names the files.
        rank: Whose.
    """

    def __init__(self, task: Task, rank: int) -> None:
        self._steps = task.steps_file(rank).open("ab", buffering=0)
        self._snapshots = task.snapshots_file.open("ab", buffering=0) if rank == 0 else None

    def step(self, paced: Paced, samples: int) -> None:
        """Write one step."""
        self._steps.write(_STEP.pack(paced.started, paced.padded, paced.wanted, samples))

    def snapshot(self, tensors: Sequence[Tensor]) -> None:
        """Write a copy of the shared model as it is now; only rank 0 does."""
        if self._snapshots is None:
            return
        flat = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])
        self._snapshots.write(_TIME.pack(time.monotonic()) + flat.numpy().tobytes())

    def close(self) -> None:
        """Close the files; a rank that is ended has no need to."""
        self._steps.close()
        if self._snapshots is not None:
            self._snapshots.close()


def state_of(model: nn.Module) -> list[Tensor]:
    """Return what a copy holds: parameters and floating-point buffers, in the model's order."""
    return [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]


def bytes_of(model: nn.Module) -> int:
    """Return the bytes of a model's parameters, which is what an average of it moves."""
    return sum(parameter.nbytes for parameter in model.parameters())


def read_steps(task: Task, rank: int) -> list[Step]:
    """Return the steps that a rank has written, in order; none where it has not begun."""
    path = task.steps_file(rank)
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) // _STEP.size * _STEP.size
    return [
        Step(started=started, padded=padded, wanted=wanted, samples=samples)
        for started, padded, wanted, samples in _STEP.iter_unpack(data[:whole])
    ]


def read_snapshots(task: Task, numel: int) -> list[tuple[float, Tensor]]:
    """Return the copies with the times they were made at."""
    data = task.snapshots_file.read_bytes()
    size = _TIME.size + 4 * numel
    found = []
    for start in range(0, len(data) - size + 1, size):
        (when,) = _TIME.unpack_from(data, start)
        values = torch.frombuffer(
            bytearray(data[start + _TIME.size : start + size]), dtype=torch.float32
        )
        found.append((when, values))
    return found


@torch.no_grad()
def load_snapshot(model: nn.Module, values: Tensor) -> None:
    """Write a copy into a model of the same kind."""
    start = 0
    for tensor in state_of(model):
        stop = start + tensor.numel()
        tensor.copy_(values[start:stop].view_as(tensor))
        start = stop
