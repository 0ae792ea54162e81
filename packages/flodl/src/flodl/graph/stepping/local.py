"""The stepper of a single device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from flodl.core.errors import StepContractError
from flodl.graph.base import GraphBase
from flodl.graph.observe.tags import value_of
from flodl.graph.observe.traces import named_traces
from flodl.graph.paths import children_of
from flodl.graph.stepping.protocols import LossContext, NamedLoader, OptimizerFactory


class LocalStepper:
    """The stepper of one device."""

    world_size = 1
    devices: tuple[torch.device, ...] = ()
    throughput: tuple[float, ...] = ()
    chunk_ratios: tuple[float, ...] = ()

    def __init__(self, graph: GraphBase) -> None:
        self.shard_sizes: tuple[int, ...] = ()
        self._graph = graph
        self._optimizer: torch.optim.Optimizer | None = None
        self._rates: list[float] = []
        self._loader: NamedLoader | None = None

    def set_optimizer(self, factory: OptimizerFactory) -> None:
        """Make the optimizer."""
        self._optimizer = factory(list(self._graph.parameters()))
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]

    def set_data_loader(self, loader: NamedLoader) -> None:
        """Take the loader."""
        self._loader = loader

    def epoch(self, number: int) -> Iterator[Any]:
        """Return the loader's batches of an epoch."""
        if self._loader is None:
            raise StepContractError(
                f"epoch({number}): there is no data", hint="call set_data_loader() before"
            )
        return self._loader.epoch(number)

    def forward(self, batch: Any, fields: Mapping[str, str]) -> Any:
        """Call the graph with the fields of a batch."""
        return self._graph(**{name: batch[field] for name, field in fields.items()})

    def context(self, batch: Any, output: Any) -> LossContext:
        """Return tags and traces of the call just made."""
        return LossContext(
            batch=batch,
            output=output,
            tags=_all_tags(self._graph),
            traces=named_traces(self._graph),
            shard_sizes=(),
            device_indices=(),
        )

    def step(self, rate: Callable[[float], float]) -> None:
        """Step the optimizer and clear all gradients."""
        if self._optimizer is None:
            raise StepContractError(
                "step(): there is no optimizer", hint="call set_optimizer(factory) before"
            )
        groups = self._optimizer.param_groups
        if all(item.grad is None for group in groups for item in group["params"]):
            raise StepContractError(
                "step(): no parameter has a gradient",
                hint="call backward() on the loss before each step",
            )
        for group, initial in zip(groups, self._rates, strict=True):
            _set_rate(group, rate(initial))
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def _all_tags(graph: GraphBase, prefix: str = "") -> dict[str, Any]:
    tags = {
        f"{prefix}{tag.name}": value_of(graph, tag.name)
        for tag in graph.flodl_plan.tags
        if not (prefix and tag.internal)
    }
    for label, child in children_of(graph).items():
        tags |= _all_tags(child, f"{prefix}{label}.")
    return tags


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        # In place: a captured step reads this tensor.
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
