"""``verify-export`` and ``verify-matrix``: exports against the reference."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from flodl_hf.commands.command import DONE, FAILED, MisuseError, command, show, split
from flodl_hf.errors import VerifyError

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")


def add_to(commands: Any) -> None:
    """Add ``verify-export`` and ``verify-matrix``."""
    _add_verify_export(commands)
    _add_verify_matrix(commands)


def _add_verify_export(commands: Any) -> None:
    for family in (None, *FAMILIES):
        name, about = "verify-export", "check an exported directory against transformers"
        if family is not None:
            name, about = (
                f"{name}-{family}",
                f"the same, against the usual repository of {family}",
            )
        parser = command(commands, name, about, _verify_export)
        parser.add_argument("folder", type=Path, metavar="DIR", help="what export wrote")
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--hub-source", metavar="ID", help="it was made from this repository")
        source.add_argument(
            "--source", type=Path, metavar="DIR", help="it was made from this directory"
        )
        source.add_argument(
            "--no-hub-source", action="store_true", help="do not compare with what it was made from"
        )
        parser.add_argument("--prompt", metavar="TEXT", help="what to compare outputs for")
        parser.set_defaults(family=family)


def _verify_export(args: argparse.Namespace) -> int:
    from flodl_hf.verify.cells import all_cells
    from flodl_hf.verify.export import PROMPT, verify_export

    source = args.hub_source or args.source
    if source is None and args.family and not args.no_hub_source:
        source = next(cell.repo for cell in all_cells() if cell.family == args.family)
    report = verify_export(
        args.folder,
        source=source,
        use_source=not args.no_hub_source,
        prompt=args.prompt or PROMPT,
    )
    lines = [
        f"FAIL {name}: {found}" if found else f"PASS {name}"
        for name, found in report.checks.items()
    ]
    lines += [f"SKIP {name}: {why}" for name, why in report.skipped.items()]
    if report.difference is not None:
        lines.append(f"largest difference between flodl and transformers: {report.difference:.1e}")
    value = {
        "folder": report.folder,
        "head": report.head,
        "passed": report.passed,
        "checks": report.checks,
        "skipped": report.skipped,
        "difference": report.difference,
    }
    show(args, value, lines)
    return DONE if report.passed else FAILED


def _add_verify_matrix(commands: Any) -> None:
    parser = command(
        commands, "verify-matrix", "export and verify every family in every shape", _verify_matrix
    )
    parser.add_argument("--families", metavar="A,B", help="some of them; all if left out")
    parser.add_argument(
        "--heads", metavar="X,Y", help="some of base, mlm, seqcls, tokcls, qa; all if left out"
    )
    parser.add_argument("--offline", action="store_true", help="seeded tiny models, no network")
    parser.add_argument("--keep", action="store_true", help="leave the exports")
    parser.add_argument(
        "--staging-dir", type=Path, metavar="DIR", help="where exports go; they stay there"
    )


def _verify_matrix(args: argparse.Namespace) -> int:
    from flodl_hf.verify.cells import choose_cells
    from flodl_hf.verify.matrix import grid, run_matrix

    try:
        cells = choose_cells(split(args.families), split(args.heads))
    except VerifyError as error:
        raise MisuseError(error.message) from error
    results = []
    for result in run_matrix(cells, offline=args.offline, staging=args.staging_dir, keep=args.keep):
        results.append(result)
        if not args.json:
            verdict = "PASS" if result.passed else "FAIL"
            difference = "" if result.difference is None else f" {result.difference:.1e}"
            line = f"{verdict} {result.cell.name}{difference} {result.problem}".rstrip()
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    value = [
        {
            "cell": result.cell.name,
            "passed": result.passed,
            "problem": result.problem,
            "difference": result.difference,
            "seconds": round(result.seconds, 2),
        }
        for result in results
    ]
    failed = sum(not result.passed for result in results)
    show(args, value, [grid(results), f"{len(results) - failed} passed, {failed} failed"])
    return FAILED if failed else DONE
