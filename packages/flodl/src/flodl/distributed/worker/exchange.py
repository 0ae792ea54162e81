"""Averages the gradients of a step between its two halves, on the rank's data plane."""

from __future__ import annotations

from collections.abc import Callable

from flodl.distributed.averaging.gradients import GradientOutcome, GradientPlane
from flodl.distributed.averaging.rounds import Progress
from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.engine.gradients import FlatGradients


class GradientExchange:
    """The ``reduce`` hook of a rank's step.

    Args:
        plane: The rank's data plane.
        is_interrupted: Whether to give up waiting, because something else is to be done first.
        timeout_s: Seconds after which the others count as lost.
    """

    def __init__(
        self, plane: GradientPlane, is_interrupted: Callable[[], bool], timeout_s: float
    ) -> None:
        self._plane = plane
        self._is_interrupted = is_interrupted
        self._timeout_s = timeout_s
        self._samples = 0
        self.last: GradientOutcome | None = None
        """What the ranks found out in the step at hand; ``None`` before they have averaged."""

    def expect(self, samples: int) -> None:
        """Begin with a batch of so many samples; 0 in a step that only follows the others."""
        self._samples, self.last = samples, None

    @property
    def is_left_out(self) -> bool:
        """Whether all ranks leave out the step at hand, as gradients were not finite."""
        return self.last is not None and not self.last.is_usable

    def __call__(self, gradients: FlatGradients) -> None:
        """Replace gradients by their mean over all samples of the step, in place.

        Raises:
            Interrupted: Something else is to be done first.
            CollectiveError: A rank is gone, or did not come in time.
        """
        plane = self._plane
        step = plane.last_completed + 1
        plane.contribute(step, self._samples, is_bad=gradients.flag)
        progress = plane.wait(interrupted=self._is_interrupted, timeout_s=self._timeout_s)
        if progress is Progress.FAILED:
            raise CollectiveError(
                f"the gradients of step {step} were not averaged: {plane.failure}"
            )
        if progress is not Progress.DONE:
            if self._is_interrupted():
                raise Interrupted(f"step {step}: given up for a message")
            raise CollectiveError(
                f"the gradients of step {step} were not averaged within {self._timeout_s:g} s"
            )
        self.last = plane.commit()
        if not self.last.is_usable and gradients.flag is not None:
            gradients.flag.fill_(1.0)  # all ranks leave this step out together
