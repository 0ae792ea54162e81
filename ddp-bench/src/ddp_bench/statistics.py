"""Medians, their spread, and ratios of them with an interval."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
TIE = 0.02
_TO_DEVIATION = 1.4826  # of a normal distribution: deviation over median absolute deviation


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """A ratio of two medians and its 95 % interval over the rounds.

    With one round there is no interval: ``low`` and ``high`` are the ratio itself.
    """

    value: float
    low: float
    high: float

    @property
    def is_tie(self) -> bool:
        """Whether no difference was found."""
        return self.low <= 1 <= self.high or abs(1 - self.value) < TIE


def scaled_mad(values: Sequence[float]) -> float:
    """Return 1.4826 times the median distance from the median."""
    middle = statistics.median(values)
    return _TO_DEVIATION * statistics.median(abs(value - middle) for value in values)


def ratio_of(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0) -> Ratio:
    """Return the ratio of the medians, with a bootstrap interval over rounds taken together.

    Args:
        ours: One time a round.
        theirs: The other side's, in the same rounds.
        seed: Of the resampling.
    """
    value = statistics.median(ours) / statistics.median(theirs)
    count = len(ours)
    if count < 2:
        return Ratio(value=value, low=value, high=value)
    draw = random.Random(seed)  # noqa: S311 - resampling keeps no secret
    found = []
    for _ in range(RESAMPLES):
        rounds = [draw.randrange(count) for _ in range(count)]
        mine = statistics.median(ours[number] for number in rounds)
        found.append(mine / statistics.median(theirs[number] for number in rounds))
    found.sort()
    cut = round(0.025 * RESAMPLES)
    return Ratio(value=value, low=found[cut], high=found[-1 - cut])


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def mean_ratio_of(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Ratio:
    """Return the geometric mean of the ratios of several models, with its interval.

    The interval takes the models' errors as independent: half widths of the logarithms add in
    squares.
    """
    ratios = [ratio_of(ours, theirs) for ours, theirs in pairs]
    value = geometric_mean([ratio.value for ratio in ratios])
    count = len(ratios)
    up = math.sqrt(sum(math.log(r.high / r.value) ** 2 for r in ratios)) / count
    down = math.sqrt(sum(math.log(r.value / r.low) ** 2 for r in ratios)) / count
    return Ratio(value=value, low=value * math.exp(-down), high=value * math.exp(up))
