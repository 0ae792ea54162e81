"""What a step gives back: scalars that are read only when someone asks."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from flodl.engine.ring import Chunk, MetricRing


class LazyScalar:
    """A number that may still be on its GPU; ``float()`` of it waits for that one step."""

    __slots__ = ("_column", "_row", "_source")

    def __init__(self, source: Tensor | Chunk, row: int = 0, column: int = 0) -> None:
        self._source = source
        self._row = row
        self._column = column

    def __float__(self) -> float:
        if isinstance(self._source, Tensor):
            return float(self._source)
        return self._source.value(self._row, self._column)

    def item(self) -> float:
        """Return the number, as a tensor's ``item`` does."""
        return float(self)

    def __repr__(self) -> str:
        return f"LazyScalar({float(self)!r})"


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one call of a step computed.

    Attributes:
        loss: The loss as the step function returned it.
        step_index: Number of the batch, from 0.
        grad_norm: Joint norm of the gradients before clipping; ``None`` without
            ``max_grad_norm`` and between the steps of an accumulation.
        metrics: What the step function returned or recorded besides, by name; the last value of
            a name that was recorded several times.
    """

    loss: LazyScalar
    step_index: int
    grad_norm: LazyScalar | None = None
    metrics: dict[str, LazyScalar] = field(default_factory=dict)


def reported(ring: MetricRing, names: tuple[str, ...], row: Tensor) -> StepOutput:
    """Put what a step reports into the ring, and return its numbers, to be read at any time."""
    chunk, place = ring.put(row, names)
    loss, index = LazyScalar(chunk, place, 0), ring.taken - 1
    if len(names) == 1:
        return StepOutput(loss, index)
    norm = LazyScalar(chunk, place, 1) if "grad_norm" in names else None
    metrics = {
        name.removeprefix("metric:"): LazyScalar(chunk, place, column)
        for column, name in enumerate(names)
        if name.startswith("metric:")
    }
    return StepOutput(loss, index, norm, metrics)
