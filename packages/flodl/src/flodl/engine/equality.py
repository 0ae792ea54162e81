"""Training captured and eagerly from one start, and comparing the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flodl.core.errors import CaptureMismatchError, ConfigError
from flodl.data import Batch
from flodl.engine.config import CapturePolicy
from flodl.engine.fallback import Mode, ReasonCode
from flodl.engine.step import TrainStep


@dataclass(frozen=True, slots=True)
class Difference:
    """How far apart a parameter or buffer ended.

    Attributes:
        largest: Largest absolute difference.
        relative: The same, relative to the largest absolute value of the eager one.
    """

    largest: float
    relative: float


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """What ``verify_step`` found."""

    steps: int
    mode: Mode
    """How the last step of the captured run ran."""
    eager_losses: tuple[float, ...]
    captured_losses: tuple[float, ...]
    differences: dict[str, Difference]
    """By name, for every parameter and buffer."""

    @property
    def first_difference(self) -> int | None:
        """First step whose losses differ in any bit, ``None`` when none does."""
        pairs = zip(self.eager_losses, self.captured_losses, strict=True)
        return next((index for index, (a, b) in enumerate(pairs) if a != b), None)

    @property
    def is_equal(self) -> bool:
        """Whether all losses, parameters and buffers are equal in every bit."""
        return self.first_difference is None and all(
            difference.largest == 0 for difference in self.differences.values()
        )

    def assert_close(self, relative: float = 0.0) -> None:
        """Raise unless every parameter, buffer and loss agrees.

        Args:
            relative: How much they may differ; 0 means equality in every bit.

        Raises:
            CaptureMismatchError: Something differs more; the message names the worst.
        """
        apart = {name: d.relative for name, d in self.differences.items()}
        for index, (eager, captured) in enumerate(
            zip(self.eager_losses, self.captured_losses, strict=True)
        ):
            apart[f"the loss of step {index}"] = abs(eager - captured) / max(abs(eager), 1e-12)
        name = max(apart, key=lambda key: math.inf if math.isnan(apart[key]) else apart[key])
        if not apart[name] <= relative:
            raise CaptureMismatchError(
                ReasonCode.VERIFY_MISMATCH,
                f"{name} differs by {apart[name]:.3g} of its size after {self.steps} steps, "
                f"allowed is {relative:g}; losses differ from step {self.first_difference} on",
            )


def verify_step(
    make_step: Callable[[CapturePolicy], TrainStep],
    batches: Sequence[Batch],
    n: int = 50,
    *,
    seed: int = 0,
) -> VerifyReport:
    """Take ``n`` steps eagerly and as many captured, from equal seeds, and compare.

    Args:
        make_step: Builds model, optimizer and step afresh; called with ``capture="off"`` and
            with ``capture="require"``, each time after seeding.
        batches: Used in order, from the start again when they run out.
        n: Number of steps.
        seed: Seed of both runs.

    Raises:
        ConfigError: There are no batches.
        CaptureError: The step cannot be captured.
    """
    if not batches:
        raise ConfigError("verify_step: batches is empty; give one or more")
    eager, eager_losses = _train(make_step, "off", batches, n, seed)
    captured, losses = _train(make_step, "require", batches, n, seed)
    return VerifyReport(
        steps=n,
        mode=captured.mode,
        eager_losses=eager_losses,
        captured_losses=losses,
        differences={
            name: _difference(_state(captured)[name], value)
            for name, value in _state(eager).items()
        },
    )


def _train(
    make_step: Callable[[CapturePolicy], TrainStep],
    capture: CapturePolicy,
    batches: Sequence[Batch],
    n: int,
    seed: int,
) -> tuple[TrainStep, tuple[float, ...]]:
    torch.manual_seed(seed)
    step = make_step(capture)
    torch.manual_seed(seed)
    losses: list[float] = []
    with step.reporting_to(lambda record: losses.append(record.values[0])):
        for index in range(n):
            step(batches[index % len(batches)])
        step.finish_window()
    return step, tuple(losses)


def _state(step: TrainStep) -> dict[str, Tensor]:
    return {**dict(step.model.named_parameters()), **dict(step.model.named_buffers())}


def _difference(ours: Tensor, eager: Tensor) -> Difference:
    if torch.equal(ours, eager):
        return Difference(0.0, 0.0)
    largest = float((ours.detach().double() - eager.detach().double()).abs().max())
    return Difference(largest, largest / max(float(eager.detach().double().abs().max()), 1e-12))
