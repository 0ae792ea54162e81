"""The stepper of a single device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from flodl.core.errors import StepContractError
from flodl.graph.base import GraphBase
from flodl.graph.observe.tags import value_of
from flodl.graph.observe.traces import named_traces
from flodl.graph.paths import children_of
from flodl.graph.stepping.protocols import (
    Fields,
    LossContext,
    NamedLoader,
    OptimizerFactory,
    inputs_of,
)
from flodl.graph.stepping.rates import GroupRates
from flodl.nn.clip import clip_grad_norm

if TYPE_CHECKING:
    from flodl.distributed.config import ElCheConfig
    from flodl.distributed.replica.config import DdpConfig
    from flodl.graph.state import StateControl


class LocalStepper:
    """The stepper of one device."""

    world_size = 1
    devices: tuple[torch.device, ...] = ()
    throughput: tuple[float, ...] = ()
    chunk_ratios: tuple[float, ...] = ()
    has_el_che = False
    replicas: tuple[StateControl, ...] = ()

    def __init__(self, graph: GraphBase) -> None:
        self.shard_sizes: tuple[int, ...] = ()
        self._graph = graph
        self._optimizer: torch.optim.Optimizer | None = None
        self._rates: GroupRates | None = None
        self._loader: NamedLoader | None = None
        self._max_grad_norm: float | None = None

    @property
    def is_set_up(self) -> bool:
        """Whether it has an optimizer or a loader."""
        return self._optimizer is not None or self._loader is not None

    def configure_el_che(self, config: DdpConfig | ElCheConfig) -> None:
        """Take the limit of gradients, the one setting that means something on one device."""
        self._max_grad_norm = getattr(config, "max_grad_norm", self._max_grad_norm)

    def set_optimizer(self, factory: OptimizerFactory) -> None:
        """Make the optimizer."""
        self._optimizer = factory(list(self._graph.parameters()))
        self._rates = GroupRates(self._optimizer)

    def set_data_loader(self, loader: NamedLoader) -> None:
        """Take the loader."""
        self._loader = loader

    def epoch(self, number: int) -> Iterator[Any]:
        """Return the loader's batches of an epoch."""
        if self._loader is None:
            raise no_data(number)
        return self._loader.epoch(number)

    def forward(self, batch: Any, fields: Fields) -> Any:
        """Call the graph with the fields of a batch."""
        return self._graph(**inputs_of(batch, fields))

    def context(self, batch: Any, output: Any) -> LossContext:
        """Return tags and traces of the call just made."""
        return LossContext(
            batch=batch,
            output=output,
            tags=all_tags(self._graph),
            traces=named_traces(self._graph),
            shard_sizes=(),
            device_indices=(),
        )

    def step(self, rate: Callable[[float], float]) -> None:
        """Step the optimizer and clear all gradients."""
        if self._optimizer is None or self._rates is None:
            raise no_optimizer()
        groups = self._optimizer.param_groups
        if all(item.grad is None for group in groups for item in group["params"]):
            raise no_gradient()
        if self._max_grad_norm is not None:
            clip_grad_norm(self._graph, self._max_grad_norm)
        self._rates.look()
        self._rates.write(rate)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def no_optimizer() -> StepContractError:
    """Return the error of a step without an optimizer."""
    return StepContractError(
        "step(): there is no optimizer", hint="call set_optimizer(factory) before"
    )


def no_gradient() -> StepContractError:
    """Return the error of a step without a backward pass since the last one."""
    return StepContractError(
        "step(): no parameter has a gradient", hint="call backward() on the loss before each step"
    )


def no_data(number: int) -> StepContractError:
    """Return the error of an epoch without a loader."""
    return StepContractError(
        f"epoch({number}): there is no data", hint="call set_data_loader() before"
    )


def all_tags(graph: GraphBase, prefix: str = "") -> dict[str, Any]:
    """Return the values of all tags by name, those of nested graphs under dotted names."""
    tags = {
        f"{prefix}{tag.name}": value_of(graph, tag.name)
        for tag in graph.flodl_plan.tags
        if not (prefix and tag.internal)
    }
    for label, child in children_of(graph).items():
        tags |= all_tags(child, f"{prefix}{label}.")
    return tags
