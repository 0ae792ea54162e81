"""One signature of a step, recorded as a GPU graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from flodl.data import Batch
from flodl.device.gpu_graph import GpuGraph, PoolHandle
from flodl.engine.body import StepBody, StepScope, tensors_only
from flodl.engine.fallback import CaptureAbandoned, CaptureReason, ReasonCode
from flodl.engine.observation import Observation, Observer
from flodl.engine.rates import StepRates
from flodl.graph.memory import Memory


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a window of accumulated batches a call is.

    Attributes:
        starts: Whether it is the first batch.
        ends: Whether the optimizer steps after it.
        is_split: Whether the update is a graph of its own, launched once all is checked.
        steps: Whole steps that one replay takes.
    """

    starts: bool
    ends: bool
    is_split: bool = False
    steps: int = 1

    @property
    def is_optional(self) -> bool:
        """Whether the same steps can be taken by other recordings."""
        return self.is_split or self.steps > 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where steps are captured: memory, stream, and the random generators that take part."""

    pool: PoolHandle
    stream: torch.cuda.Stream
    generators: Sequence[torch.Generator]


WHOLE, SPLIT = Part(True, True), Part(True, True, is_split=True)
PARTS = {
    (True, True): WHOLE,
    (True, False): Part(True, False),
    (False, True): Part(False, True),
    (False, False): Part(False, False),
}


class Inputs(Protocol):
    """Where a recorded step finds its batches."""

    def fill(self, batch: Any) -> None:
        """Make this batch the one that the next step reads."""
        ...

    def read(self) -> Batch:
        """Return the batch; called within the step."""
        ...

    def again(self) -> None:
        """Make the next step read the same batch once more."""
        ...

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the inputs that a step changes."""
        ...


@dataclass(frozen=True, slots=True)
class Update:
    """Clipping and the optimizer's step as a graph of their own, after an exchange of gradients.

    Attributes:
        graph: The recording.
        names: Names of the values of the step's row in the ring.
        row: The values.
    """

    graph: GpuGraph
    names: tuple[str, ...]
    row: Tensor


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
        update: The second graph, where an exchange of gradients or a check lies between.
        kept: Tensors that forward and backward change, each with what it was before.
        uses_random: Whether it draws random numbers, once that is known.
        rates: Learning rates of its steps, where it takes several and a schedule sets them.
    """

    graph: GpuGraph
    inputs: Inputs
    loss: Tensor
    names: tuple[str, ...]
    row: Tensor
    part: Part
    has_update: bool
    gradients: list[tuple[nn.Parameter, Tensor]]
    observed: list[Observation]
    tags: list[tuple[Memory, tuple[Any, ...]]]
    update: Update | None = None
    kept: Sequence[tuple[Tensor, Tensor]] = ()
    uses_random: bool | None = None
    rates: StepRates | None = None

    @property
    def updates(self) -> bool:
        """Whether the optimizer's step is recorded, in the graph or in a second one."""
        return self.has_update or self.update is not None

    def set_rates(self, rates: Sequence[float] | None) -> None:
        """Set the learning rates of the steps of the next replay."""
        if self.rates is not None and rates is not None:
            self.rates.load(rates)

    def undo(self) -> None:
        """Put back what forward and backward have changed; random numbers apart."""
        with torch.no_grad():
            for tensor, before in self.kept:
                tensor.copy_(before)

    @property
    def has_lost_gradients(self) -> bool:
        """Whether somebody has set the gradients to ``None`` since they were shown."""
        if not self.gradients:
            return False
        parameter, gradient = self.gradients[0]
        return parameter.grad is not gradient

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
    inputs: Inputs,
    part: Part,
    *,
    with_update: bool,
    place: Place,
    keep: Sequence[Tensor] = (),
    rates: StepRates | None = None,
) -> Program:
    """Capture a step, or several; nothing is executed.

    Args:
        body: What a step computes.
        scope: Gathers what it reports.
        inputs: Where it finds its batches.
        part: Which part of an accumulation window it is.
        with_update: Whether the optimizer's step belongs to the graph.
        place: Memory, stream and generators.
        keep: Tensors whose values it keeps, so that it can be undone.
        rates: Learning rates of several steps.

    Raises:
        CaptureAbandoned: The step records numbers, or the optimizer makes state in the graph.
        RuntimeError: What the step did cannot be captured.
    """
    graph = GpuGraph()
    observer = Observer(body.model)
    rows: list[Tensor] = []
    with (
        _no_new_state(body),
        graph.capture(place.pool, stream=place.stream, generators=place.generators),
    ):
        # by aliases: a tensor may be given other memory before it is undone
        kept = [(tensor.detach(), tensor.detach().clone()) for tensor in keep]
        for step in range(part.steps):
            if rates is not None:
                rates.use(step)
            with scope.active():
                loss, returned = body.forward_backward(inputs.read(), starts_window=part.starts)
            metrics = tensors_only(scope.take(returned))
            if part.ends:
                body.flag()
            norm = body.update() if with_update else None
            names, row = row_of(loss, norm, metrics)
            rows.append(row)
        joined = row if part.steps == 1 else torch.stack(rows)
    gradients = [(p, p.grad) for p in body.parameters if p.grad is not None]
    return Program(
        graph,
        inputs,
        loss,
        names,
        joined,
        part,
        with_update,
        gradients,
        observer.found(),
        body.state.tags(),
        kept=kept,
        rates=rates,
    )


def record_update(body: StepBody, program: Program, place: Place) -> Update:
    """Capture clipping and the optimizer's step; nothing is executed.

    Raises:
        CaptureAbandoned: The optimizer makes state in the graph.
        RuntimeError: What it did cannot be captured.
    """
    graph = GpuGraph()
    with (
        _no_new_state(body),
        graph.capture(place.pool, stream=place.stream, generators=place.generators),
    ):
        norm = body.update()
        names, row = program.names, program.row
        if norm is not None:
            names, row = with_norm(names, row, norm)
    return Update(graph, names, row)


@contextmanager
def _no_new_state(body: StepBody) -> Iterator[None]:
    """Raise when the optimizer made state: no replay would begin it anew.

    Raises:
        CaptureAbandoned: It did.
    """
    known = set(body.optimizer.state)
    try:
        yield
    finally:
        made = set(body.optimizer.state) - known
        for parameter in made:  # it lies in the graph's memory
            del body.optimizer.state[parameter]
    if made:
        raise CaptureAbandoned(
            CaptureReason.of(
                ReasonCode.OPTIMIZER_NOT_CAPTURABLE,
                f"{type(body.optimizer).__name__} makes new state at this step",
                in_update=True,
            )
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
