"""Command line of the scaling suite: ``python -m ddp_bench.scaling``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ddp_bench.errors import BenchError, UsageError
from ddp_bench.progress import to_stderr
from ddp_bench.scaling import report
from ddp_bench.scaling.scenario import PERIODS, SCENARIOS, choose
from ddp_bench.scaling.suite import SuiteConfig, run, seeds_of
from flodl.checkpoint.files import write_atomically

CI_SEEDS, SEEDS = 3, 5


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(word) for word in text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ddp_bench.scaling",
        description="How soon two ranks, one of them slow, reach a loss. "
        "Also: curves (simulated ranks) and startup, with options of their own.",
    )
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    parser.add_argument("--ci", action="store_true", help="few arms, short runs: ten minutes")
    parser.add_argument("--gate", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--output", type=Path, default=None, help="file to write the JSON to")
    parser.add_argument(
        "--seeds", type=_count, default=None, help=f"how many (default: {SEEDS}; --ci: {CI_SEEDS})"
    )
    parser.add_argument("--scenarios", type=_words, default=(), help=f"of {names}")
    parser.add_argument("--arms", type=_words, default=(), help="these only: a comma list")
    parser.add_argument(
        "--periods", type=_counts, default=PERIODS, help="of the arms that are told one: 8,32,64"
    )
    parser.add_argument("--model", default="mlp", help="a model of ddp-bench (default: mlp)")
    parser.add_argument(
        "--optimizer",
        choices=("own", "sgd"),
        default="own",
        help="of all arms: the model's own, or SGD with momentum (default: own)",
    )
    parser.add_argument("--epochs", type=_count, default=None, help="of the run alone")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite, or one of the two beside it; 1 if a bar is missed under ``--gate``."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["curves"]:
        from ddp_bench.scaling.curves import main as curves

        return curves(words[1:])
    if words[:1] == ["startup"]:
        from ddp_bench.scaling.startup import main as startup

        return startup(words[1:])
    options = _parser().parse_args(words)
    try:
        config = SuiteConfig(
            scenarios=choose(options.scenarios, ci=options.ci),
            seeds=tuple(seeds_of(options.seeds or (CI_SEEDS if options.ci else SEEDS))),
            ci=options.ci,
            model=options.model,
            optimizer=options.optimizer,
            arms=options.arms,
            periods=options.periods,
            epochs=options.epochs,
        )
        result = run(config, to_stderr)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except BenchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.output is not None:
        with write_atomically(options.output) as file:
            file.write(report.as_json(result).encode())
    sys.stdout.write(report.as_json(result) if options.json else report.markdown(result))
    return 1 if options.gate and not result.passed else 0


if __name__ == "__main__":
    sys.exit(main())
