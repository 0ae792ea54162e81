"""One replica in this process: the others are in processes that torchrun or Slurm started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from typing import Any, final

import torch

from flodl.distributed.collective.errors import PayloadMismatchError
from flodl.distributed.replica.drivers import on_device
from flodl.distributed.replica.gathering import Gatherer, Part
from flodl.distributed.replica.member import Reading
from flodl.distributed.replica.scattering import first_device, rows_of, scatter
from flodl.distributed.replica.stepper import SpreadStepper


@final
class RankStepper(SpreadStepper):
    """Steps of a graph that is one of several, each in its process.

    An epoch yields this rank's rows of each batch, and a loss is the mean over them. A direct call
    of the graph runs what it is given: the loop of each rank brings its own rows.
    """

    def forward_call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the replica."""
        rows = rows_of(args, kwargs)
        (call,) = scatter(args, kwargs, [rows], self.devices)
        assert call is not None, "the first part is always there"
        parts = self._run([[(call, rows)]])
        return self._gathered(parts, [rows] * self.world_size, first_device(args, kwargs))

    def _drive(self, tasks: Sequence[Callable[[], Any] | None]) -> list[Any]:
        (device,) = self.devices
        with on_device(device):
            return [None if task is None else task() for task in tasks]

    def _gathered(self, parts: Sequence[Part], rows: Sequence[int], device: torch.device) -> Any:
        self.shard_sizes = tuple(rows)
        if len(parts) == 1 and device == self.devices[0]:
            return parts[0].output
        gatherer = Gatherer(parts, device)
        gatherer.fill(self._members[0].graphs)
        return gatherer.output()

    def _weight(self) -> float:
        whole = sum(self.shard_sizes)
        return self.shard_sizes[self._ranks[0]] / whole if whole else 1.0

    def _to_local_means(self, weights: Sequence[int]) -> None:
        """Leave gradients: they are."""

    def _of_all(self, readings: Sequence[Reading], window_ms: float) -> list[Reading]:
        (own,) = readings
        mine = replace(own, wall_ms=window_ms, sync_ms=self._sync_ms, order_crc=self._order_crc)
        table = [
            Reading(
                rows=int(rows),
                batches=int(batches),
                forward_ms=forward_ms,
                wall_ms=wall_ms,
                sync_ms=sync_ms,
                order_crc=int(order),
            )
            for rows, batches, forward_ms, wall_ms, sync_ms, order in self._ddp.gather(
                [astuple(mine)]
            )
        ]
        _refuse_other_orders([reading.order_crc for reading in table])
        return table


def _refuse_other_orders(orders: Sequence[int]) -> None:
    """Refuse ranks that read samples in orders of their own.

    Raises:
        PayloadMismatchError: They would train on some samples twice, and on others never.
    """
    others = [rank for rank, order in enumerate(orders) if order != orders[0]]
    if others:
        raise PayloadMismatchError(
            f"ranks {others} read the epoch in another order of samples than rank 0",
            hint="give all the same seed; a sampler of torch needs a generator with a seed",
        )
