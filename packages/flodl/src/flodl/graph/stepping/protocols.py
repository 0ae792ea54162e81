"""What a graph's training loop needs from others: data, schedules, and what runs the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from flodl.distributed.config import ElCheConfig
    from flodl.distributed.replica.config import DdpConfig
    from flodl.graph.state import StateControl

OptimizerFactory = Callable[[list["nn.Parameter"]], torch.optim.Optimizer]
LossFunction = Callable[..., "Tensor"]
Fields: TypeAlias = Mapping[str, str | None]
"""By input, the field of a batch that it gets; ``None`` for one that gets nothing."""


class RateSchedule(Protocol):
    """A learning rate as a function of the step; flodl's schedulers are such."""

    def lr(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        ...


class NamedBatch(Protocol):
    """Tensors of one batch by name."""

    def __getitem__(self, key: str) -> Tensor:
        """Return one tensor."""
        ...


class NamedLoader(Protocol):
    """Gives batches by epoch; flodl's ``DataLoader`` is one."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors of a batch."""
        ...

    def epoch(self, number: int) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch; it has a length."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LossContext:
    """What a loss function may look at besides output and batch.

    Attributes:
        batch: The batch.
        output: What the graph returned.
        tags: Values of tags by name, those of nested graphs under dotted names; gradients live.
        traces: Values by iteration of the traces of this graph.
        shard_sizes: Rows on each device.
        device_indices: Devices the batch was spread over.
        rank: Number of this process.
        world_size: How many take part.
        weight: Share of this batch in the whole: the sum of ``weight * local mean`` over all
            ranks is the mean over all samples.
    """

    batch: Any
    output: Any
    tags: Mapping[str, Any]
    traces: Mapping[str, list[Tensor]]
    shard_sizes: tuple[int, ...]
    device_indices: tuple[int, ...]
    rank: int = 0
    world_size: int = 1
    weight: float = 1.0


class Stepper(Protocol):
    """Runs a graph's steps: on one device, or, bound by the distributed package, on many."""

    @property
    def is_set_up(self) -> bool:
        """Whether it has an optimizer or a loader."""
        ...

    @property
    def world_size(self) -> int:
        """How many devices take part."""
        ...

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices that take part, none named when there is a single one."""
        ...

    @property
    def throughput(self) -> tuple[float, ...]:
        """Samples per millisecond of each device."""
        ...

    @property
    def chunk_ratios(self) -> tuple[float, ...]:
        """Share of each batch that each device gets."""
        ...

    @property
    def shard_sizes(self) -> tuple[int, ...]:
        """Rows of the last batch on each device."""
        ...

    @property
    def has_el_che(self) -> bool:
        """Whether devices take whole batches, as many as their speed allows."""
        ...

    @property
    def replicas(self) -> Sequence[StateControl]:
        """Graphs of this process besides the one that is trained, which follow its state."""
        ...

    def configure_el_che(self, config: DdpConfig | ElCheConfig) -> None:
        """Take settings of the exchange between devices."""
        ...

    def set_optimizer(self, factory: OptimizerFactory) -> None:
        """Make the optimizer, or one for each replica."""
        ...

    def set_data_loader(self, loader: NamedLoader) -> None:
        """Take the loader whose batches the steps get."""
        ...

    def epoch(self, number: int) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch."""
        ...

    def forward(self, batch: Any, fields: Fields) -> Any:
        """Return the output for a batch; ``fields`` names the field of each input."""
        ...

    def context(self, batch: Any, output: Any) -> LossContext:
        """Return what the loss function may look at."""
        ...

    def step(self, rate: Callable[[float], float]) -> None:
        """Synchronize gradients, set rates from initial ones, step and clear gradients."""
        ...


def inputs_of(batch: Any, fields: Fields) -> dict[str, Any]:
    """Return the inputs that a batch gives; ``None`` for those without a field."""
    return {name: None if field is None else batch[field] for name, field in fields.items()}
