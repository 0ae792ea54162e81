"""Averaging kernels against torch doing the same arithmetic with its own operations.

Both sides run in one process on the same number of threads, in interleaved rounds, over buffers
larger than the caches. A round takes the best of a few calls of each side, as calls that shared
their cores with something else say little, and gives one ratio; the figure is the median of the
ratios, its spread a 99% interval of that median.
"""

import argparse
import dataclasses
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from flodl.distributed.averaging import kernels
from flodl_sys.errors import NativeUnavailableError
from flodl_sys.kernels import available_cores, status

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST_ELEMENTS = 16 * 2**20
CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
MOST_ELEMENTS = 64 * 2**20  # keeps the run at 2 GB and below a minute
DEFAULT_ROUNDS = 21
CALLS_PER_ROUND = 3
Z_99 = 2.576  # standard normal quantile of a two-sided 99% interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """The least speed ratio, and which end of the measured interval has to reach it."""

    least: float
    judged_by: Literal["median", "high"]


NOT_SLOWER = Bar(least=1.0, judged_by="high")
FOUR_TIMES = Bar(least=4.0, judged_by="median")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A median and the order statistics that enclose it with 99% confidence."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Returns the interval of the median of independent values, whatever their distribution."""
        ordered = sorted(values)
        cut = max(0, math.floor((len(ordered) - Z_99 * math.sqrt(len(ordered))) / 2))
        return cls(low=ordered[cut], median=statistics.median(ordered), high=ordered[-1 - cut])


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One kernel and torch's way to the same result; ``n_bytes`` is what has to move at least."""

    name: str
    torch_form: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    n_bytes: int
    bar: Bar


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """What was measured for one kernel; a ratio above 1 means faster than torch."""

    name: str
    torch_form: str
    ours_ms: float
    torch_ms: float
    ratio: Interval
    gbytes_per_s: float
    bar: Bar

    @property
    def holds(self) -> bool:
        """Whether the bar is reached."""
        reached = self.ratio.high if self.bar.judged_by == "high" else self.ratio.median
        return reached >= self.bar.least


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelsResult:
    """All kernels of one run, with what it ran on."""

    processor: str
    torch_version: str
    isa: str
    threads: int
    elements: int
    rounds: int
    copy_gbytes_per_s: float
    cases: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every bar is reached."""
        return all(case.holds for case in self.cases)


def run(
    *,
    elements: int | None = None,
    rounds: int = DEFAULT_ROUNDS,
    threads: int | None = None,
) -> KernelsResult:
    """Measures all kernels; needs about 30 bytes of memory for each element.

    Args:
        elements: Length of each buffer; by default such that a buffer fills the last cache.
        rounds: How often each side of each case runs.
        threads: For both sides; the cores that this process may use by default.

    Raises:
        NativeUnavailableError: A pure build of flodl-sys has no kernels to measure.
    """
    found = status()
    if found.isa is None:
        raise NativeUnavailableError(
            f"no native kernels to measure: {found.reason}", hint=found.hint
        )
    elements = elements_beyond_cache() if elements is None else elements
    with _torch_threads(threads or available_cores()):
        cases, copy = _cases(elements)
        measured = _measure([*cases, copy], rounds)
        return KernelsResult(
            processor=_processor(),
            torch_version=torch.__version__,
            isa=found.isa,
            threads=torch.get_num_threads(),
            elements=elements,
            rounds=rounds,
            copy_gbytes_per_s=measured[-1].gbytes_per_s,
            cases=tuple(measured[:-1]),
        )


def _cases(n: int) -> tuple[list[Case], Case]:
    """Returns the cases that count, and a copy against itself as the measure of the machine."""
    rng = torch.Generator().manual_seed(0)
    x, c, mine, others = (torch.randn(n, generator=rng) for _ in range(4))
    packed = [torch.randn(n, generator=rng).bfloat16() for _ in range(4)]
    out, term = torch.empty(n), torch.empty(n)
    out_bf16 = torch.empty(n, dtype=torch.bfloat16)
    weights, alpha = [0.1, 0.2, 0.3, 0.4], 0.01
    native = kernels.NativeBackend()

    def torch_average_of_four() -> None:
        # the fastest of its forms: converting into scratch memory beats mixed-type arithmetic
        out.copy_(packed[0]).mul_(weights[0])
        for buffer, weight in zip(packed[1:], weights[1:], strict=True):
            out.add_(term.copy_(buffer), alpha=weight)

    cases = [
        Case(
            name="scale f32",
            torch_form="mul(out=)",
            ours=lambda: kernels.weighted_average([x], [0.5], out=out, backend=native),
            theirs=lambda: torch.mul(x, 0.5, out=out),
            n_bytes=8 * n,
            bar=NOT_SLOWER,
        ),
        Case(
            name="EASGD blend f32",
            torch_form="lerp_",
            ours=lambda: kernels.easgd_blend_(mine, c, alpha, backend=native),
            theirs=lambda: others.lerp_(c, alpha),
            n_bytes=12 * n,
            bar=NOT_SLOWER,
        ),
        Case(
            name="pack bf16",
            torch_form="copy_",
            ours=lambda: kernels.pack_bf16(x, out=out_bf16, backend=native),
            theirs=lambda: out_bf16.copy_(x),
            n_bytes=6 * n,
            bar=NOT_SLOWER,
        ),
        Case(
            name="unpack bf16",
            torch_form="copy_",
            ours=lambda: kernels.unpack_bf16(packed[0], out=out, backend=native),
            theirs=lambda: out.copy_(packed[0]),
            n_bytes=6 * n,
            bar=NOT_SLOWER,
        ),
        Case(
            name="average 4 x bf16",
            torch_form="copy_, mul_, add_(alpha=)",
            ours=lambda: kernels.weighted_average(packed, weights, out=out, backend=native),
            theirs=torch_average_of_four,
            n_bytes=12 * n,
            bar=FOUR_TIMES,
        ),
    ]
    copy = Case(
        name="copy f32",
        torch_form="copy_",
        ours=lambda: out.copy_(x),
        theirs=lambda: out.copy_(x),
        n_bytes=8 * n,
        bar=NOT_SLOWER,
    )
    return cases, copy


def _measure(cases: Sequence[Case], rounds: int) -> list[CaseResult]:
    for case in cases:  # first touch of memory, threads, code
        case.ours()
        case.theirs()
    times: list[list[tuple[float, float]]] = [[] for _ in cases]
    for round_index in range(rounds):
        for case, pairs in zip(cases, times, strict=True):
            pairs.append(_best_of_both(case, ours_first=round_index % 2 == 0))
    return [_summarize(case, pairs) for case, pairs in zip(cases, times, strict=True)]


def _best_of_both(case: Case, *, ours_first: bool) -> tuple[float, float]:
    if ours_first:
        ours = _best(case.ours)
        return ours, _best(case.theirs)
    theirs = _best(case.theirs)
    return _best(case.ours), theirs


def _best(call: Callable[[], object]) -> float:
    # several in a row: for milliseconds after a call, torch's idle threads spin on the cores, which
    # costs the first call of the other side
    return min(_time(call) for _ in range(CALLS_PER_ROUND))


def _time(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _summarize(case: Case, pairs: Sequence[tuple[float, float]]) -> CaseResult:
    ours_s = statistics.median(ours for ours, _ in pairs)
    return CaseResult(
        name=case.name,
        torch_form=case.torch_form,
        ours_ms=1e3 * ours_s,
        torch_ms=1e3 * statistics.median(theirs for _, theirs in pairs),
        ratio=Interval.of([theirs / ours for ours, theirs in pairs]),
        gbytes_per_s=case.n_bytes / ours_s / 1e9,
        bar=case.bar,
    )


@contextmanager
def _torch_threads(threads: int) -> "Iterator[None]":
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def elements_beyond_cache() -> int:
    """Returns how many float32 elements fill the last cache, within bounds of memory and time."""
    told = CACHE_SIZE.read_text(encoding="ascii") if CACHE_SIZE.is_file() else "0K"
    kib = told.strip().removesuffix("K")
    return min(max(LEAST_ELEMENTS, int(kib) * 1024 // 4), MOST_ELEMENTS)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def render(result: KernelsResult) -> str:
    """Returns the result as a table for people."""
    lines = [
        f"{result.processor}, {result.threads} threads, {result.isa}; torch {result.torch_version};"
        f" {result.elements:,} elements, {result.rounds} interleaved rounds",
        f"a plain copy of one float32 buffer reaches {result.copy_gbytes_per_s:.1f} GB/s",
        "",
        f"{'kernel':<18}{'ours ms':>9}{'torch ms':>10}{'  times as fast (99%)':<26}"
        f"{'GB/s':>6}{'of copy':>9}  bar",
    ]
    for case in result.cases:
        ratio = f"  {case.ratio.median:5.2f} ({case.ratio.low:.2f} to {case.ratio.high:.2f})"
        of_copy = case.gbytes_per_s / result.copy_gbytes_per_s
        verdict = "ok" if case.holds else "MISSED"
        lines.append(
            f"{case.name:<18}{case.ours_ms:>9.2f}{case.torch_ms:>10.2f}{ratio:<26}"
            f"{case.gbytes_per_s:>6.1f}{of_copy:>9.0%}"
            f"  {case.bar.judged_by} >= {case.bar.least:g}: {verdict}"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark from the command line; 1 if a bar is missed under ``--gate``."""
    parser = argparse.ArgumentParser(
        prog="python -m ddp_bench.overhead.kernels",
        description="Averaging kernels against torch's own operations.",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--elements", type=_positive, default=None, help="per buffer")
    parser.add_argument("--rounds", type=_positive, default=DEFAULT_ROUNDS)
    parser.add_argument("--threads", type=_positive, default=None, help="default: all cores")
    options = parser.parse_args(argv)
    try:
        result = run(elements=options.elements, rounds=options.rounds, threads=options.threads)
    except NativeUnavailableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(_as_json(result) if options.json else render(result))
    return 1 if options.gate and not result.passed else 0


def _as_json(result: KernelsResult) -> str:
    cases = [{**dataclasses.asdict(case), "holds": case.holds} for case in result.cases]
    facts = {**dataclasses.asdict(result), "cases": cases, "passed": result.passed}
    return json.dumps(facts, indent=2) + "\n"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
