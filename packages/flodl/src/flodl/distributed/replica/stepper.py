"""What runs a graph's loop on several devices, whichever of them are driven from here."""

from __future__ import annotations

import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig
from flodl.distributed.replica.balance import Balance
from flodl.distributed.replica.batch import ShardedBatch, Turn
from flodl.distributed.replica.cadence import Cadence, settings_of
from flodl.distributed.replica.config import DdpConfig
from flodl.distributed.replica.epoch import Loop, ReplicaEpoch
from flodl.distributed.replica.feeding import Feeding, feeding_of
from flodl.distributed.replica.optimizers import load_together, made_for
from flodl.graph.observe.traces import named_traces
from flodl.graph.state import StateControl
from flodl.graph.stepping.local import all_tags, no_data, no_gradient, no_optimizer
from flodl.graph.stepping.protocols import Fields, LossContext, inputs_of
from flodl.records.events import EventKind

if TYPE_CHECKING:
    from flodl.distributed.ddp import Ddp
    from flodl.distributed.replica.gathering import Part
    from flodl.distributed.replica.member import Member, Reading
    from flodl.distributed.replica.scattering import Call
    from flodl.graph.graph import Graph
    from flodl.graph.stepping.protocols import NamedLoader, OptimizerFactory


class SpreadStepper(Loop):
    """Steps of a graph whose replicas lie on several devices.

    Args:
        graph: The graph that the user holds.
        members: The replicas that are driven from here, the one of ``graph`` first.
        ddp: Keeps them together with all others.
        kinds: What the device of each rank is; only whether they are the same counts.
    """

    def __init__(
        self, graph: Graph, members: Sequence[Member], ddp: Ddp, *, kinds: Sequence[str]
    ) -> None:
        self.world_size = ddp.world_size
        self.devices = ddp.devices
        self.shard_sizes: tuple[int, ...] = ()
        self.is_heterogeneous = len(set(kinds)) > 1
        """Whether devices differ."""
        self._graph = graph
        self._members = list(members)
        self._ranks = range(ddp.rank, ddp.rank + len(members))
        self._ddp = ddp
        self._config = DdpConfig(max_anchor=0)
        self._balance = Balance(ddp.world_size, holds=graph.has_state)
        self._cadence: Cadence | None = None
        self._feeding: Feeding | None = None
        self._epoch: weakref.ref[ReplicaEpoch] | None = None
        self._turn: Turn | None = None
        self._began: float | None = None
        self._sync_ms = 0.0
        self._is_alone = False
        ddp.sync_params()
        graph.forward = self.forward_call  # type: ignore[method-assign] # while it is distributed

    @property
    def is_set_up(self) -> bool:
        """Whether it has an optimizer or a loader."""
        return self._members[0].has_optimizer or self._feeding is not None

    @property
    def throughput(self) -> tuple[float, ...]:
        """Samples per millisecond of each device."""
        return tuple(self._balance.throughput)

    @property
    def chunk_ratios(self) -> tuple[float, ...]:
        """Share of each batch that each device gets."""
        return self._balance.ratios if self._cadence is None else self._cadence.shares

    @property
    def has_el_che(self) -> bool:
        """Whether devices take whole batches, as many as their speed allows."""
        return self._cadence is not None

    @property
    def replicas(self) -> Sequence[StateControl]:
        """Graphs of this process besides the one that is trained, which follow its state."""
        others = [member.graph for member in self._members[1:]]
        return [graph for graph in others if isinstance(graph, StateControl)]

    def configure_el_che(self, config: DdpConfig | ElCheConfig) -> None:
        """Take settings of the exchange between devices, or of ElChe alone."""
        if isinstance(config, ElCheConfig):
            self._cadence = Cadence(self.world_size, config, self._config.timeline)
        elif not isinstance(config, DdpConfig):
            raise ConfigError(
                f"configure_el_che of a {type(config).__name__}: expected a DdpConfig or an "
                "ElCheConfig"
            )
        elif config.max_anchor == 0:
            self._config, self._cadence = config, None
        else:
            cadence = Cadence(self.world_size, settings_of(config), config.timeline)
            self._config, self._cadence = config, cadence

    def set_optimizer(self, factory: OptimizerFactory) -> None:
        """Make an optimizer for each replica; what one of them loads, all do.

        Raises:
            ConfigError: ``factory`` gives none, or one of other parameters.
        """
        optimizers = [
            made_for(member.parameters, factory, f"replica {rank} on {member.device}")
            for rank, member in zip(self._ranks, self._members, strict=True)
        ]
        load_together(optimizers)
        for member, optimizer in zip(self._members, optimizers, strict=True):
            member.set_optimizer(optimizer)

    def set_data_loader(self, loader: NamedLoader) -> None:
        """Take the loader whose batches are shared out."""
        self._feeding = feeding_of(loader, self.devices, self._ranks)

    def epoch(self, number: int) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch."""
        if self._feeding is None:
            raise no_data(number)
        running = None if self._epoch is None else self._epoch()
        if running is not None:
            running.expire()
        self._turn = None
        epoch = ReplicaEpoch(self._feeding, self, number)
        if self._cadence is not None:
            self._cadence.begin(epoch.batches)
        self._epoch = weakref.ref(epoch)
        return epoch

    @property
    def _order_crc(self) -> int:
        return 0 if self._feeding is None else self._feeding.order_crc

    @property
    def deals_whole(self) -> bool:
        """Whether devices take whole batches."""
        return self._cadence is not None

    def sizes(self, rows: int) -> list[int]:
        """Return how many rows of one batch each rank takes."""
        return self._balance.sizes(rows)

    def counts(self, batches: int | None) -> list[int]:
        """Return how many batches each rank takes."""
        assert self._cadence is not None, "only asked where whole batches are dealt"
        return self._cadence.counts(batches)

    def take_note(self, turn: Turn) -> None:
        """See the rows that come next."""
        self._turn = turn

    @property
    def has_pending_gradients(self) -> bool:
        """Whether gradients wait for a step."""
        return any(member.has_gradient for member in self._members)

    @property
    def steps_each_turn(self) -> bool:
        """Whether the user's loop has made a step since the last rows, so will after the next."""
        return self._turn is None and torch.is_grad_enabled()

    def step_alone(self) -> None:
        """Make a step that the user's loop does not make."""
        self._is_alone = True
        try:
            self._graph.step()
        finally:
            self._is_alone = False

    @abstractmethod
    def forward_call(self, *args: Any, **kwargs: Any) -> Any:
        """Do what calling the graph does."""

    def forward(self, batch: Any, fields: Fields) -> Any:
        """Return the output for a batch; ``fields`` names the field of each input."""
        if not isinstance(batch, ShardedBatch):
            return self._graph(**inputs_of(batch, fields))
        calls: list[list[tuple[Call, int]]] = [
            [(((), inputs_of(one, fields)), one.size) for one in own] for own in batch.shards
        ]
        return self._gathered(self._run(calls), batch.rows, batch.device)

    def _run(self, calls: Sequence[Sequence[tuple[Call, int]]]) -> list[Part]:
        """Call the replicas side by side, each as often as told; return what they made, in order.

        Args:
            calls: For each replica that is driven from here, calls and their rows.
        """
        self._follow()
        if self._began is None and torch.is_grad_enabled():
            self._began = time.perf_counter()
        tasks = [
            _calling(member, own) if own else None
            for member, own in zip(self._members, calls, strict=True)
        ]
        return [part for parts in self._drive(tasks) if parts is not None for part in parts]

    def _follow(self) -> None:
        """See what was done to the graph since the last call."""
        self._members[0].check()

    @abstractmethod
    def _drive(self, tasks: Sequence[Callable[[], Any] | None]) -> list[Any]:
        """Run a task for each replica that is driven from here."""

    @abstractmethod
    def _gathered(self, parts: Sequence[Part], rows: Sequence[int], device: torch.device) -> Any:
        """Return one output for those of several calls, and keep tags and traces likewise.

        Args:
            parts: What the replicas that are driven from here made.
            rows: Rows of all ranks.
            device: Where the output is wanted.
        """

    def context(self, batch: Any, output: Any) -> LossContext:
        """Return what the loss function may look at."""
        return LossContext(
            batch=batch,
            output=output,
            tags=all_tags(self._members[0].graph),
            traces=named_traces(self._members[0].graph),
            shard_sizes=self.shard_sizes,
            device_indices=tuple(map(_index, self._ranks, self.devices)),
            rank=self._ranks[0],
            world_size=self.world_size,
            weight=self._weight(),
        )

    @abstractmethod
    def _weight(self) -> float:
        """Return the share that a loss computed here has in that of all."""

    def step(self, rate: Callable[[float], float]) -> None:
        """Average gradients, set rates, step all optimizers and clear gradients."""
        if not self._members[0].has_optimizer:
            raise no_optimizer()
        if not self._is_alone and not self.has_pending_gradients:
            raise no_gradient()
        table = self._of_all([member.read() for member in self._members], self._window_ms())
        weights = self._weights([reading.rows for reading in table])
        started = self._tell_start()
        self._exchange(weights if any(weights) else [1] * self.world_size)
        self._sync_ms = self._tell_end(started)
        first, *others = self._members
        first.rates.look()
        for member in others:
            member.rates.take(first.rates)
        self._drive([_stepping(member, rate) for member in self._members])
        self._learn(table)

    def _weights(self, rows: Sequence[int]) -> Sequence[int]:
        """Return how much the gradients of each rank count, given its rows since the last step."""
        return rows

    def _exchange(self, weights: Sequence[int]) -> None:
        for member in self._members:
            member.refuse_sparse()
        self._to_local_means(weights)
        if self._config.max_grad_norm is not None:
            for member in self._members:
                member.clip(self._config.max_grad_norm)
        self._ddp.weighted_all_reduce_gradients(weights, missing="zero")
        self._ddp.sync_buffers()

    @abstractmethod
    def _to_local_means(self, weights: Sequence[int]) -> None:
        """Make each replica's gradients those of the mean over its own rows."""

    @abstractmethod
    def _of_all(self, readings: Sequence[Reading], window_ms: float) -> list[Reading]:
        """Return the readings of all ranks, given those that are driven from here."""

    def _window_ms(self) -> float:
        """Return the time since the first call after the last step, all work done."""
        began, self._began = self._began, None
        if began is None:
            return 0.0
        if self._cadence is not None:
            for device in self.devices:
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
        return _ms_since(began)

    def _learn(self, table: Sequence[Reading]) -> None:
        """See how fast devices were."""
        for rank, reading in enumerate(table):
            self._balance.take(rank, reading.rows, reading.forward_ms)
        self._balance.step()
        turn, self._turn = self._turn, None
        if self._cadence is not None and turn is not None:
            self._cadence.report(
                [reading.wall_ms for reading in table],
                [reading.batches for reading in table],
                max(reading.sync_ms for reading in table),
            )

    def _tell_start(self) -> float:
        if self._config.timeline is not None:
            self._config.timeline.event(EventKind.sync_start())
        return time.perf_counter()

    def _tell_end(self, started: float) -> float:
        sync_ms = _ms_since(started)
        if self._config.timeline is not None:
            self._config.timeline.event(EventKind.sync_end(ms=sync_ms))
        return sync_ms


def _index(rank: int, device: torch.device) -> int:
    """Return the index of a GPU, and the rank of a replica on the CPU."""
    index: int | None = device.index
    return rank if index is None else index


def _calling(member: Member, calls: Sequence[tuple[Call, int]]) -> Callable[[], list[Part]]:
    return lambda: [member.call(call, rows) for call, rows in calls]


def _stepping(member: Member, rate: Callable[[float], float]) -> Callable[[], None]:
    return lambda: member.step(rate)


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1000
