"""Loops of the user's own on simulated ranks, with their faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from flodl.distributed.worker.cooperative import OwnLoop, RankSource, Source, begin, end
from flodl.testing.sim.faults import Fault, Injector

if TYPE_CHECKING:
    from flodl.data import Batch
    from flodl.distributed.worker.loop import RankLoop
    from flodl.distributed.worker.worker import Worker

LoopFn = Callable[["Worker"], None]
"""What stands in the ``with`` block of ``into_worker()``, as a function of the worker."""


def run_own_loop(loop: RankLoop, body: LoopFn, injector: Injector) -> int:
    """Run a user's loop as the rank that a loop belongs to, and return its exit status."""
    error: Exception | None = None
    try:
        try:
            begin(loop)
            trainee = loop.trainee
            assert trainee is not None
            trainee.worker.loop = OwnLoop(_FaultySource(RankSource(loop), injector))
            body(trainee.worker)
        except Exception as raised:  # noqa: BLE001 - of the user, as in a real rank
            error = raised
        end(loop, error)
    finally:
        loop.close()
    assert loop.code is not None
    return loop.code


def raise_fault(fault: Fault | None) -> None:
    """Raise what user code is to raise."""
    if fault is not None and fault.kind == "exception":
        raise ValueError("injected into the step")
    if fault is not None and fault.kind == "oom":
        raise torch.OutOfMemoryError("injected: out of memory")


class _FaultySource:
    """Lets the faults of a rank happen where its steps are taken."""

    def __init__(self, source: Source, injector: Injector) -> None:
        self._source, self._injector = source, injector

    def next_batch(self) -> Batch | None:
        return self._source.next_batch()

    def epoch_of(self, batch: Batch) -> int:
        return self._source.epoch_of(batch)

    def step(self, batch: Batch, loss: torch.Tensor, started: float) -> None:
        fault = self._injector.step()
        raise_fault(fault)
        is_nan = fault is not None and fault.kind == "nan"
        self._source.step(batch, loss * float("nan") if is_nan else loss, started)

    def put_back(self, batch: Batch) -> None:
        self._source.put_back(batch)
