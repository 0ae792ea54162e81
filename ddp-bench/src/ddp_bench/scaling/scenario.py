"""What happens to the ranks, and which arms meet it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ddp_bench.errors import UsageError
from ddp_bench.scaling.slow import SlowRank
from flodl.testing.sim import SlowLink

SYNC = ("gloo-sync", "cpu-sync")
CADENCE = ("gloo-cadence", "cpu-cadence")
ASYNC = "cpu-async"
DILOCO = "cpu-async-diloco"
FLODL = (*SYNC, *CADENCE, ASYNC, DILOCO)
REFERENCE = "torch-ddp"
PERIODIC = ("torch-localsgd", "torchft-localsgd", "torchft-diloco")
"""Competitors that are told how often to average; the best of ``PERIODS`` counts."""
PERIODS = (8, 32, 64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Two ranks, one of them or the way between them slow in some way."""

    name: str
    slow: SlowRank
    arms: tuple[str, ...]
    link: SlowLink = field(default_factory=SlowLink)
    times_solo: float = 3.0
    """How long arms train, in runs of the model alone; what is not reached then is censored."""
    least_s: float = 0.0
    """At least so many seconds."""
    ci_arms: tuple[str, ...] = ()
    """Arms of the short run; none: the scenario is left out of it."""
    ci_times_solo: float = 1.5

    def run_s(self, solo_s: float, *, ci: bool) -> float:
        """Return how long arms train."""
        return max(self.least_s, solo_s * (self.ci_times_solo if ci else self.times_solo))

    def slow_rank(self, run_s: float) -> SlowRank:
        """Return the slow rank of a run of that length."""
        slow = self.slow
        return SlowRank(rank=slow.rank, factor=slow.factor, pattern=slow.pattern, half_s=run_s / 2)


_ALL = (REFERENCE, *PERIODIC, *FLODL)
_CALM = (REFERENCE, *CADENCE, ASYNC)
SCENARIOS = (
    Scenario(
        name="equal",
        slow=SlowRank(factor=1.0),
        arms=_ALL,
        ci_arms=(REFERENCE, "gloo-sync", "gloo-cadence", ASYNC),
    ),
    Scenario(
        name="slow",
        slow=SlowRank(factor=2.5),
        arms=_ALL,
        ci_arms=(REFERENCE, "gloo-cadence", ASYNC),
        ci_times_solo=2.5,
    ),
    Scenario(name="link", slow=SlowRank(factor=1.0), link=SlowLink(latency_ms=50), arms=_ALL),
    Scenario(name="change", slow=SlowRank(factor=3.0, pattern="change"), arms=_CALM),
    Scenario(name="jitter", slow=SlowRank(factor=2.5, pattern="jitter"), arms=_CALM),
    Scenario(name="stall", slow=SlowRank(factor=2.5, pattern="stall"), arms=_CALM, least_s=40.0),
)


def choose(names: tuple[str, ...], *, ci: bool) -> tuple[Scenario, ...]:
    """Return the scenarios of those names; without names, those of the short or the full run.

    Raises:
        UsageError: There is none of that name.
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in names:
        if name not in known:
            raise UsageError(f"scenario {name!r}: there are {', '.join(known)}")
    if names:
        return tuple(known[name] for name in names)
    return tuple(scenario for scenario in SCENARIOS if scenario.ci_arms or not ci)
