"""One signature of a step, recorded as a GPU graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from flodl.device.gpu_graph import GpuGraph, PoolHandle
from flodl.engine.body import StepBody, StepScope, tensors_only
from flodl.engine.buffers import StaticInputs
from flodl.engine.fallback import CaptureAbandoned, CaptureReason, ReasonCode
from flodl.engine.observation import Observation, Observer
from flodl.graph.base import Memory


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a window of accumulated batches a call is.

    Attributes:
        starts: Whether it is the first batch.
        ends: Whether the optimizer steps after it.
    """

    starts: bool
    ends: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where steps are captured: memory, stream, and the random generators that take part."""

    pool: PoolHandle
    stream: torch.cuda.Stream
    generators: Sequence[torch.Generator]


PARTS = {(starts, ends): Part(starts, ends) for starts in (True, False) for ends in (True, False)}


@dataclass(slots=True, eq=False)
class Program:
    """A recorded step.

    Attributes:
        graph: The recording.
        inputs: Where batches go.
        loss: The loss of the last replay.
        names: Names of the values of its row in the ring.
        row: The values, in memory of the graph.
        part: Which part of an accumulation window it is.
        has_update: Whether the optimizer's step is in the graph.
        gradients: The gradients that each replay writes.
        observed: Tensors that it leaves in attributes of modules.
        tags: Values of the graphs' tags.
    """

    graph: GpuGraph
    inputs: StaticInputs
    loss: Tensor
    names: tuple[str, ...]
    row: Tensor
    part: Part
    has_update: bool
    gradients: list[tuple[nn.Parameter, Tensor]]
    observed: list[Observation]
    tags: list[tuple[Memory, tuple[Any, ...]]]

    def show(self) -> None:
        """Let gradients, tags and what modules keep for looking at be those that replays write."""
        for observation in self.observed:
            observation.show()
        for memory, tagged in self.tags:
            memory.tagged = tagged
        for parameter, gradient in self.gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient


def record(
    body: StepBody,
    scope: StepScope,
    inputs: StaticInputs,
    part: Part,
    *,
    with_update: bool,
    place: Place,
) -> Program:
    """Capture one step; nothing is executed.

    Raises:
        CaptureAbandoned: The step records numbers, or the optimizer makes state in the graph.
        RuntimeError: What the step did cannot be captured.
    """
    graph = GpuGraph()
    observer = Observer(body.model)
    with_state = set(body.optimizer.state)
    with graph.capture(place.pool, stream=place.stream, generators=place.generators):
        with scope.active():
            loss, returned = body.forward_backward(inputs.batch, starts_window=part.starts)
        metrics = tensors_only(scope.take(returned))
        norm = body.update() if with_update else None
        names, row = row_of(loss, norm, metrics)
    made = set(body.optimizer.state) - with_state
    if made:
        for parameter in made:  # it lies in the graph's memory, and no replay began it
            del body.optimizer.state[parameter]
        raise CaptureAbandoned(
            CaptureReason.of(
                ReasonCode.OPTIMIZER_NOT_CAPTURABLE,
                f"{type(body.optimizer).__name__} makes new state at this step",
                in_update=True,
            )
        )
    gradients = [(p, p.grad) for p in body.parameters if p.grad is not None]
    return Program(
        graph,
        inputs,
        loss,
        names,
        row,
        part,
        with_update,
        gradients,
        observer.found(),
        body.state.tags(),
    )


def row_of(
    loss: Tensor, norm: Tensor | None, metrics: Sequence[tuple[str, Tensor]]
) -> tuple[tuple[str, ...], Tensor]:
    """Return names and values of what a step reports: loss, norm if any, metrics."""
    named = [("loss", loss)] + ([] if norm is None else [("grad_norm", norm)])
    named += [(f"metric:{name}", value) for name, value in metrics]
    names = tuple([name for name, _ in named])
    if len(named) == 1:
        return names, loss
    return names, torch.stack([value.detach().float().reshape(()) for _, value in named])


def with_norm(names: tuple[str, ...], row: Tensor, norm: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Return names and row with the gradient norm in its place after the loss."""
    values = row.reshape(-1)
    joined = torch.cat([values[:1].float(), norm.reshape(1).float(), values[1:].float()])
    return (names[0], "grad_norm", *names[1:]), joined
