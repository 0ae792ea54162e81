"""One replica of a graph on its device: its calls, their times, and its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import nn

from flodl.core.errors import ConfigError, StepContractError
from flodl.device.streams import GpuEvent
from flodl.distributed.replica.gathering import Part, snapshot
from flodl.distributed.replica.scattering import tensors_in
from flodl.graph.base import GraphBase
from flodl.graph.stepping.rates import GroupRates
from flodl.nn.clip import clip_grad_norm

if TYPE_CHECKING:
    from flodl.distributed.replica.scattering import Call


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one replica has done since the last step, in calls that record gradients."""

    rows: int = 0
    batches: int = 0
    forward_ms: float = 0.0
    """Time of the calls on the device."""
    wall_ms: float = 0.0
    """Time of all the work up to the step, backward passes included."""
    sync_ms: float = 0.0
    """Time of the exchange before."""
    order_crc: int = 0
    """Tells apart the orders of samples that ranks read in; 0 where none is known."""


@final
class Member:
    """A replica.

    Args:
        graph: Its graph, on its device.
        device: The device.
        is_trained: Whether it is the graph that the user holds, whose calls go to all replicas.
    """

    def __init__(self, graph: GraphBase, device: torch.device, *, is_trained: bool) -> None:
        self.graph = graph
        self.device = device
        self.graphs = {
            path: module for path, module in graph.named_modules() if isinstance(module, GraphBase)
        }
        self._is_trained = is_trained
        self._parameters = list(graph.parameters())
        self._optimizer: torch.optim.Optimizer | None = None
        self._rates: GroupRates | None = None
        self._rows = 0
        self._timed: list[tuple[GpuEvent, GpuEvent]] = []
        self.owes_gradient = False
        """Whether a call since the last step led to a parameter, so that a gradient is to come."""

    @property
    def has_optimizer(self) -> bool:
        """Whether there is an optimizer."""
        return self._optimizer is not None

    def check(self) -> None:
        """Check that the graph is as it was when it was distributed.

        Raises:
            StepContractError: Parameters were moved, or exchanged for others.
        """
        now = list(self.graph.parameters())
        if any(parameter.device != self.device for parameter in now):
            raise StepContractError(
                f"this graph was moved from {self.device} since it was distributed",
                hint="move it before distribute(), which gives each device a replica",
            )
        if list(map(id, now)) != list(map(id, self._parameters)):
            raise StepContractError(
                "the parameters of this graph are others than when it was distributed",
                hint="change its modules before distribute(), or build it anew",
            )

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters."""
        return self._parameters

    @property
    def has_gradient(self) -> bool:
        """Whether a parameter has a gradient."""
        return any(parameter.grad is not None for parameter in self._parameters)

    def set_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the optimizer."""
        self._optimizer = optimizer
        self._rates = GroupRates(optimizer)

    @property
    def rates(self) -> GroupRates:
        """Learning rates of the optimizer."""
        assert self._rates is not None, "there is an optimizer"
        return self._rates

    def call(self, call: Call, rows: int) -> Part:
        """Run the graph, and return what it made and kept."""
        start, end = GpuEvent(device=self.device), GpuEvent(device=self.device)
        args, kwargs = call
        for graph in self.graphs.values():
            # One that this call does not reach would show the rows of an earlier one.
            graph.flodl_memory.drop_values()
        start.record()
        if self._is_trained:
            # Not the call that goes to all replicas, but the graph's own code.
            output = GraphBase.forward(self.graph, *args, **kwargs)
        else:
            output = self.graph(*args, **kwargs)
        end.record()
        if torch.is_grad_enabled():
            self._rows += rows
            self._timed.append((start, end))
            self.owes_gradient |= any(one.requires_grad for one in tensors_in([output]))
        return snapshot(self.graphs, rows, output)

    def read(self) -> Reading:
        """Return what was done since the last reading, after waiting for it."""
        reading = Reading(
            rows=self._rows,
            batches=len(self._timed),
            forward_ms=sum(GpuEvent.elapsed_time(start, end) for start, end in self._timed),
        )
        self._rows = 0
        self._timed.clear()
        return reading

    def drop_gradients(self) -> None:
        """Clear all gradients."""
        for parameter in self._parameters:
            parameter.grad = None
        self.owes_gradient = False

    def scale_gradients(self, factor: float) -> None:
        """Multiply all gradients."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if gradients and factor != 1:
            torch._foreach_mul_(gradients, factor)

    def clip(self, max_norm: float) -> None:
        """Scale gradients so that their joint 2-norm is at most ``max_norm``."""
        clip_grad_norm(self._parameters, max_norm)

    def refuse_sparse(self) -> None:
        """Check that gradients can be averaged.

        Raises:
            ConfigError: One is sparse.
        """
        for parameter in self._parameters:
            if parameter.grad is not None and parameter.grad.layout is not torch.strided:
                name = next(n for n, p in self.graph.named_parameters() if p is parameter)
                raise ConfigError(
                    f"the gradient of {name} is sparse: devices exchange dense ones only",
                    hint="make the embedding with sparse=False",
                )

    def step(self, rate: Callable[[float], float]) -> None:
        """Set learning rates, step the optimizer and clear all gradients."""
        assert self._optimizer is not None, "checked before gradients were exchanged"
        self.rates.write(rate)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        # Also those of parameters that the optimizer was not given: they were averaged, too.
        self.drop_gradients()
