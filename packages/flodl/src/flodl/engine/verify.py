"""Comparing replays with eager steps: around the first replay, and on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flodl.device.gpu_graph import RandomState

NamedTensor = tuple[str, Tensor]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The tensor in which a replay differs most from the eager step.

    Attributes:
        name: Name of the tensor.
        largest: Largest absolute difference.
        replay: Which replay it was, 1 or 2.
    """

    name: str
    largest: float
    replay: int

    def __str__(self) -> str:
        which = "the first replay" if self.replay == 1 else "a second replay"
        return f"{which} differs from the eager step in {self.name} by {self.largest:.3g}"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much a replay may differ: ``absolute + relative * |eager|``."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, *, is_low_precision: bool) -> Tolerance:
        """Return the tolerance of a precision."""
        return cls(2e-2, 1e-3) if is_low_precision else cls(1e-4, 1e-6)


class Saved:
    """Values of tensors, and of the random generator, at one moment."""

    def __init__(self, tensors: Sequence[NamedTensor], random: RandomState) -> None:
        self._tensors = tensors
        self.values = [tensor.detach().clone() for _, tensor in tensors]
        self._random = random
        random.save()

    def restore(self) -> None:
        """Put the values back in place."""
        with torch.no_grad():
            for (_, tensor), value in zip(self._tensors, self.values, strict=True):
                tensor.copy_(value)
        self._random.restore()


def check_replay(
    replay: Callable[[], list[NamedTensor]],
    eager: Callable[[], list[NamedTensor]],
    tensors: Sequence[NamedTensor],
    random: RandomState,
    tolerance: Tolerance,
) -> Mismatch | None:
    """Replay a step twice and take it eagerly twice, from one state; leave all as it was before.

    The second pair finds what the first cannot: state that the step keeps where a replay does
    not renew it.

    Args:
        replay: Launches the graph; returns what it computed, the loss first.
        eager: Takes the same step eagerly; returns the same.
        tensors: Everything that a step may change, by name.
        random: The random generators that take part.
        tolerance: How much they may differ.
    """
    before = Saved(tensors, random)
    replayed = [_copies(replay(), tensors) for _ in range(2)]
    before.restore()
    mismatch = None
    for number, ours in enumerate(replayed, start=1):
        theirs = _copies(eager(), tensors)
        found = worst(ours, theirs, tolerance)
        if found is not None:
            name, largest = found
            before.restore()
            again = [_copies(eager(), tensors) for _ in range(number)][-1]
            # Kernels that are not deterministic excuse small differences, but none in the loss:
            # what makes that one differ from itself is outside the GPU.
            if name == next(iter(ours)) or largest > 10 * _largest(theirs[name], again[name]):
                mismatch = Mismatch(name, largest, number)
            break
    before.restore()
    return mismatch


def _copies(computed: list[NamedTensor], tensors: Sequence[NamedTensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in (*computed, *tensors)}


def worst(
    ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: Tolerance
) -> tuple[str, float] | None:
    """Return the name of the tensor that differs most beyond the tolerance, and by how much.

    The first, the loss, goes before all others.
    """
    names = list(ours)
    outside = [_exceeds(ours[name], theirs[name], tolerance) for name in names]
    place = outside[0].device
    flags = torch.stack([flag.to(place) for flag in outside]).tolist()
    found = [
        (index == 0, _largest(ours[name], theirs[name]), name)
        for index, (name, flag) in enumerate(zip(names, flags, strict=True))
        if flag
    ]
    if not found:
        return None
    _, largest, name = max(found)
    return name, largest


def _exceeds(one: Tensor, other: Tensor, tolerance: Tolerance) -> Tensor:
    if not (one.is_floating_point() or one.is_complex()):
        return (one != other).any()
    allowed = tolerance.absolute + tolerance.relative * other.abs()
    same = (one == other) | (one.isnan() & other.isnan())
    return ~(same | ((one - other).abs() <= allowed)).all()


def _largest(one: Tensor, other: Tensor) -> float:
    if one.dtype == torch.bool:
        return float((one != other).any())
    if not one.numel():
        return 0.0
    return float((one.double() - other.double()).abs().nan_to_num(nan=float("inf")).max())
