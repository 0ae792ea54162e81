"""All replicas in this process: one thread drives each device, collectives join them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from flodl.distributed.replica.drivers import Drivers
from flodl.distributed.replica.gathering import Gatherer, Part
from flodl.distributed.replica.mirror import Mirror
from flodl.distributed.replica.observing import observed_once
from flodl.distributed.replica.scattering import first_device, rows_of, scatter
from flodl.distributed.replica.stepper import SpreadStepper

if TYPE_CHECKING:
    import torch

    from flodl.distributed.ddp import Ddp
    from flodl.distributed.replica.member import Member, Reading
    from flodl.graph.graph import Graph


@final
class ReplicaStepper(SpreadStepper):
    """Steps of a graph with a replica on each device of this process.

    A loss is computed once, over the rows of all devices, so the gradients of a replica are its
    rows' part of the whole. Before they are clipped and averaged they are made those of the mean
    over its own rows, as a process with one replica has them.
    """

    def __init__(
        self, graph: Graph, members: Sequence[Member], ddp: Ddp, *, kinds: Sequence[str]
    ) -> None:
        super().__init__(graph, members, ddp, kinds=kinds)
        self._drivers = Drivers(self.devices)
        self._mirror = Mirror(members)

    def forward_call(self, *args: Any, **kwargs: Any) -> Any:
        """Share the rows out, call each replica, and return the outputs as one."""
        sizes = self._balance.sizes(rows_of(args, kwargs))
        calls = scatter(args, kwargs, sizes, self.devices)
        given = [
            [] if call is None else [(call, rows)] for call, rows in zip(calls, sizes, strict=True)
        ]
        with observed_once(self._members[0].graphs):
            return self._gathered(self._run(given), sizes, first_device(args, kwargs))

    def forward(self, batch: Any, fields: Any) -> Any:
        """See `SpreadStepper`."""
        with observed_once(self._members[0].graphs):
            return super().forward(batch, fields)

    def step(self, rate: Callable[[float], float]) -> None:
        """See `SpreadStepper`."""
        super().step(rate)
        self._mirror.note()

    def _follow(self) -> None:
        super()._follow()
        if self._mirror.carry_over():
            self._ddp.sync_params()
            self._mirror.note()

    def _drive(self, tasks: Sequence[Callable[[], Any] | None]) -> list[Any]:
        return self._drivers.run(tasks)

    def _gathered(self, parts: Sequence[Part], rows: Sequence[int], device: torch.device) -> Any:
        self._mirror.note_call()
        self.shard_sizes = tuple(rows)
        gatherer = Gatherer(parts, device)
        gatherer.fill(self._members[0].graphs)
        return gatherer.output()

    def _weight(self) -> float:
        return 1.0

    def _weights(self, rows: Sequence[int]) -> Sequence[int]:
        # A replica without rows may have a gradient still: that of a penalty of the parameters.
        return [
            own or int(member.has_gradient) for member, own in zip(self._members, rows, strict=True)
        ]

    def _to_local_means(self, weights: Sequence[int]) -> None:
        for member, own in zip(self._members, weights, strict=True):
            if own:
                member.scale_gradients(sum(weights) / own)

    def _of_all(self, readings: Sequence[Reading], window_ms: float) -> list[Reading]:
        # A backward pass takes its devices' time in proportion to forward, which is what is timed.
        longest = max(reading.forward_ms for reading in readings)
        return [
            replace(
                reading,
                wall_ms=window_ms * reading.forward_ms / longest if longest > 0 else 0.0,
                sync_ms=self._sync_ms,
            )
            for reading in readings
        ]
