"""What must hold of the figures: the bars of the loader suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddp_bench.loading.fallback import Fallback
from ddp_bench.loading.measure import Figures
from ddp_bench.overhead.kernels import Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One bar: what was found, what is asked, and whether it holds."""

    case: str
    bar: str
    found: float
    least: float | None = None
    most: float | None = None
    high: float | None = None
    """Upper end of the ratio over the rounds, by which bars that a tie passes are judged."""

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        reached = self.found if self.high is None else self.high
        return (self.least is None or reached >= self.least) and (
            self.most is None or self.found <= self.most
        )


def judge(case: str, figures: Sequence[Figures], *, on_gpu: bool) -> list[Verdict]:
    """Return the verdicts on one case.

    On the CPU nothing is idle for want of data in a way that 5 ms of sleep could show, so the bars
    of idle time are those of a GPU.
    """
    ours = [arm for arm in figures if arm.side == "flodl"]
    theirs = [arm for arm in figures if arm.side == "torch"]
    resident = [arm for arm in ours if arm.name == "resident"]
    streaming = [arm for arm in ours if arm.name != "resident"]
    quickest, fastest = _fastest(theirs), _fastest(streaming)
    verdicts = [_not_slower(case, "streaming / best torch loader", fastest, quickest)]
    if case == "images in memory":
        verdicts += _resident(case, resident[0], theirs, on_gpu=on_gpu)
    if on_gpu:
        steady = min(streaming, key=lambda arm: arm.idle_share)
        verdicts += [
            Verdict(case=case, bar="idle, resident", found=arm.idle_share, most=0.005)
            for arm in resident
        ]
        verdicts.append(
            Verdict(case=case, bar="idle, streaming", found=steady.idle_share, most=0.03)
        )
    for kind, arms in (("resident", resident), ("streaming", streaming)):
        gaps = [arm.epoch_gap_batches for arm in arms]
        verdicts += [
            Verdict(case=case, bar=f"epoch gap in batches, {kind}", found=gap, most=1.0)
            for gap in sorted(gaps)[:1]
        ]
    return verdicts


def judge_fallback(case: str, found: Fallback) -> list[Verdict]:
    """Return the verdicts on a loader whose GPU had no room."""
    return [
        Verdict(case=case, bar="streams instead", found=float(found.fell_back), least=1.0),
        Verdict(case=case, bar="first batch, s", found=found.first_batch_s, most=2.0),
        Verdict(case=case, bar="lost samples", found=found.lost, most=0),
    ]


def _resident(
    case: str, resident: Figures, theirs: Sequence[Figures], *, on_gpu: bool
) -> list[Verdict]:
    rate = resident.samples_per_s
    best = max(arm.samples_per_s for arm in theirs)
    if on_gpu:
        return [Verdict(case=case, bar="resident / best torch loader", found=rate / best, least=5)]
    items = next(arm for arm in theirs if arm.name == "items, 0 workers")
    batched = _fastest([arm for arm in theirs if arm.name.startswith("batched")])
    return [
        Verdict(
            case=case,
            bar="resident / torch items, 0 workers",
            found=rate / items.samples_per_s,
            least=3,
        ),
        _not_slower(case, "resident / torch batched", resident, batched),
    ]


def _fastest(arms: Sequence[Figures]) -> Figures:
    return max(arms, key=lambda arm: arm.samples_per_s)


def _not_slower(case: str, bar: str, ours: Figures, theirs: Figures) -> Verdict:
    """Return the verdict that fails only if ours is surely slower: a tie passes."""
    pairs = zip(ours.rates, theirs.rates, strict=True)
    ratio = Interval.of([mine / other for mine, other in pairs])
    return Verdict(case=case, bar=bar, found=ratio.median, least=1.0, high=ratio.high)
