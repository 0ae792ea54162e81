"""The report of the suite, as markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from ddp_bench.speed.arms import BY_NAME, Clock, Policy
from ddp_bench.speed.bars import MEAN, Verdict, failures, judge, missed
from ddp_bench.speed.compare import REFERENCE, Comparison, checked
from ddp_bench.speed.limits import Limits
from ddp_bench.speed.models import find
from ddp_bench.speed.results import RoundResult
from ddp_bench.speed.roofline import work_of
from ddp_bench.statistics import Ratio, mean_ratio_of, ratio_of, scaled_mad

_CLOCK = {"wall": "Times", "cpu": "Processor times (of all threads of the arm's process)"}
_POLICY = {
    "step": "Losses read after every step",
    "epoch": "Losses read once an epoch",
}


class Report:
    """Everything there is to say about a folder of results.

    Args:
        rows: The results.
        limits: What the device can do, where that was measured.
        clock: What times are compared.
    """

    def __init__(
        self,
        rows: Sequence[RoundResult],
        limits: Limits | None = None,
        clock: Clock = "wall",
    ) -> None:
        self._clock = clock
        self._rows = checked(rows)
        self._limits = limits
        policies: tuple[Policy, ...] = ("step", "epoch")
        self.comparisons = [
            Comparison(self._rows, policy, clock)
            for policy in policies
            if any(row.sync_policy == policy for row in rows)
        ]

    @property
    def gpu(self) -> str | None:
        """Name of the GPU, ``None`` on the CPU."""
        first = self._rows[0]
        names = first.env.get("gpus")
        return (names[0] if names else "unknown GPU") if first.device == "cuda" else None

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts of all bars."""
        return [verdict for each in self.comparisons for verdict in judge(each, self.gpu)]

    def problems(self) -> list[str]:
        """Return what must not be: arms of flodl that failed, and bars that are missed."""
        lines = {line: None for each in self.comparisons for line in failures(each)}
        return list(lines) + [_verdict_line(verdict) for verdict in missed(self.verdicts())]

    def markdown(self) -> str:
        """Return the report."""
        parts = [self._head(), *(self._section(each) for each in self.comparisons)]
        if self._limits is not None:
            parts.append(self._roofline(self.comparisons[-1], self._limits))
        parts += [self._memory(self.comparisons[-1]), self._errors(), self._bars()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _head(self) -> str:
        sound = [row for row in self._rows if row.batches_per_epoch is not None]
        row, env = (sound or self._rows)[0], self._rows[0].env
        machine = self.gpu or env.get("cpu") or "unknown CPU"
        rounds = len({row.round for row in self._rows})
        dirty = " with changes" if env.get("dirty") else ""
        lines = [
            f"# Speed suite: {machine}",
            "",
            f"- Hardware: {machine}, {env.get('cores')} CPU cores, {row.settings.get('threads')} "
            f"of them used by torch; driver {env.get('driver') or '-'}, "
            f"clocks {env.get('clocks') or '-'}.",
            f"- Software: Python {env.get('python')}, PyTorch {env.get('torch')}, "
            f"Lightning {env.get('lightning') or '-'}, "
            f"flodl {env.get('flodl') or 'from its sources'}, "
            f"commit {str(env.get('commit') or '-')[:12]}{dirty}; "
            f"measured {env.get('utc')}.",
            f"- Dimensions: {row.dims}; precision {row.precision}.",
            f"- Method: every arm in a process of its own, equal weights and batches, the order "
            f"rotated; {rounds} rounds, each the lowest median of {row.runs} runs of "
            f"{row.measured_epochs} epochs of {row.batches_per_epoch} batches after "
            f"{row.warmup_epochs} that do not count. {_CLOCK[self._clock]} are medians "
            f"over the rounds in ms an epoch ± 1.4826 times the median absolute deviation; "
            f"ratios carry the 95 % bootstrap interval over the rounds.",
        ]
        return "\n".join(lines)

    def _section(self, comparison: Comparison) -> str:
        arms = [
            arm
            for arm in BY_NAME
            if any(comparison.times(model, arm) for model in comparison.models())
        ]
        titles = ["model", *arms, f"default / {REFERENCE}", "best flodl / best torch"]
        lines = [f"## {_POLICY[comparison.policy]}", "", *_header(titles)]
        for model in comparison.models():
            cells = [model, *(_time(comparison.times(model, arm)) for arm in arms)]
            cells += [
                _ratio(comparison.ratio(model, self._default, REFERENCE)),
                _ratio(_best_ratio(comparison, model), _best_names(comparison, model)),
            ]
            lines.append(_line(cells))
        lines.append(_line([MEAN, *("" for _ in arms), *self._means(comparison)]))
        return "\n".join(lines)

    @property
    def _default(self) -> str:
        return "flodl-trainer" if self.gpu is None else "flodl-captured"

    def _means(self, comparison: Comparison) -> list[str]:
        default, best = [], []
        for model in comparison.ten():
            mine = comparison.times(model, self._default)
            eager = comparison.times(model, REFERENCE)
            ours, theirs = comparison.best(model, "flodl"), comparison.best(model, "torch")
            if mine and eager:
                default.append((mine, eager))
            if ours and theirs:
                best.append((ours[1], theirs[1]))
        return [_ratio(mean_ratio_of(pairs) if pairs else None) for pairs in (default, best)]

    def _roofline(self, comparison: Comparison, limits: Limits) -> str:
        row = self._rows[0]
        chain = (
            ""
            if limits.kernel_us is None
            else (f"; a tiny kernel in a captured chain of them {limits.kernel_us:.2f} µs")
        )
        lines = [
            "## Distance to the limits of the device",
            "",
            f"Measured in the same run: {limits.fp32 / 1e12:.2f} TFLOP/s in float32, "
            f"{limits.tf32 / 1e12:.2f} in TF32, {limits.bf16 / 1e12:.2f} in bfloat16; copies at "
            f"{limits.copy / 1e9:.0f} GB/s{chain}. The floor is the longer of arithmetic and "
            "memory traffic: products at the rate of the precision, convolutions and cuDNN's "
            "recurrent layers at that of TF32; parameters as Adam touches them, and each tensor "
            "that is kept for the backward pass written and read once.",
            "",
            *_header(
                ["model", "GFLOP", "MB", "compute ms", "memory ms", "best flodl ms a step", "times"]
            ),
        ]
        found = []
        for model in comparison.ten():
            best = comparison.best(model, "flodl")
            if best is None:
                continue
            work = work_of(find(model), row.dims)
            step_ms = statistics.median(best[1]) / (row.batches_per_epoch or 1)
            distance = step_ms / work.floor_ms(limits, row.precision)
            cells = [
                model,
                f"{(work.product_flops + work.cudnn_flops) / 1e9:.1f}",
                f"{work.n_bytes / 1e6:.0f}",
                f"{work.compute_ms(limits, row.precision):.3f}",
                f"{work.memory_ms(limits):.3f}",
                f"{step_ms:.3f}",
                f"{distance:.1f}",
            ]
            found.append((distance, cells))
        lines += [_line(cells) for _, cells in sorted(found, reverse=True)]
        return "\n".join(lines)

    def _memory(self, comparison: Comparison) -> str:
        titles = [
            "model",
            "arm",
            "alloc MB",
            "reserved MB",
            "first step s",
            "first epoch s",
            "host us a step",
            "capture",
            "repaid after epochs",
        ]
        lines = ["## Memory and set-up", "", *_header(titles)]
        for model in comparison.models():
            for arm in BY_NAME:
                row = comparison.row(model, arm)
                if row is None:
                    continue
                capture = row.capture or {}
                pool = f", pool {capture['pool_mb']} MB" if "pool_mb" in capture else ""
                state = "" if "ok" not in capture else ("yes" if capture["ok"] else "no")
                lines.append(
                    _line(
                        [
                            model,
                            row.label,
                            _number(row.vram_mb),
                            _number(row.vram_reserved_mb),
                            _seconds(row.first_step_ms),
                            _seconds(row.first_epoch_ms),
                            _number(row.host_us_per_step),
                            state + pool,
                            _break_even(row, comparison.row(model, REFERENCE)),
                        ]
                    )
                )
        return "\n".join(lines)

    def _errors(self) -> str:
        found = sorted({error for each in self.comparisons for error in each.errors()})
        if not found:
            return ""
        lines = [f"- {model}, {arm}: {reason}" for model, arm, reason in found]
        return "\n".join(["## Left out", "", *lines])

    def _bars(self) -> str:
        verdicts = self.verdicts()
        if not verdicts:
            return ""
        lines = ["## Bars", "", *_header(["losses read", "bar", "model", "found", "at most", ""])]
        for verdict in verdicts:
            state = "" if verdict.holds else "MISSED"
            cells = [verdict.policy, verdict.bar, verdict.subject, _ratio(verdict.found)]
            lines.append(_line([*cells, f"{verdict.most:.2f}", state]))
        return "\n".join(lines)


def _best_ratio(comparison: Comparison, model: str) -> Ratio | None:
    ours, theirs = comparison.best(model, "flodl"), comparison.best(model, "torch")
    return None if ours is None or theirs is None else ratio_of(ours[1], theirs[1])


def _best_names(comparison: Comparison, model: str) -> str:
    ours, theirs = comparison.best(model, "flodl"), comparison.best(model, "torch")
    return "" if ours is None or theirs is None else f" ({ours[0]} / {theirs[0]})"


def _break_even(row: RoundResult, reference: RoundResult | None) -> str:
    """Return after how many epochs an arm has made up for its longer start."""
    if reference is None or row is reference:
        return ""
    times = (
        row.first_epoch_ms,
        row.median_epoch_ms,
        reference.first_epoch_ms,
        reference.median_epoch_ms,
    )
    if None in times:
        return "-"
    first, later, other_first, other_later = (float(time or 0.0) for time in times)
    if later >= other_later:
        return "never" if first >= other_first else "-"
    return f"{1 + max(0.0, first - other_first) / (other_later - later):.0f}"


def _verdict_line(verdict: Verdict) -> str:
    return (
        f"missed: {verdict.bar}, {verdict.subject} ({verdict.policy}): "
        f"{_ratio(verdict.found)}, at most {verdict.most:.2f}"
    )


def _time(times: Sequence[float] | None) -> str:
    return "-" if not times else f"{statistics.median(times):.1f} ± {scaled_mad(times):.1f}"


def _ratio(ratio: Ratio | None, names: str = "") -> str:
    if ratio is None:
        return "-"
    interval = "" if ratio.low == ratio.high else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"{ratio.value:.3f}{interval}{names}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1e3:.2f}"


def _header(titles: Sequence[str]) -> list[str]:
    return [_line(titles), _line(["---", *("---:" for _ in titles[1:])])]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
