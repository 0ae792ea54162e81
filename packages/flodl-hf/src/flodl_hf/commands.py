"""``fdl flodl-hf …``: each command parses, calls one service, and prints."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flodl.core.errors import FlodlError
from flodl_hf.errors import VerifyError

DEFAULT_CLASSIFIER = "cardiffnlp/twitter-roberta-base-sentiment-latest"
SAMPLES = ("I love this framework!", "It works.", "This is the worst day of my life.")
FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")

DONE, FAILED, MISUSE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 misuse."""
    parser = _parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else MISUSE
    try:
        code: int = args.run(args)
    except _MisuseError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        parser.print_usage(sys.stderr)
        return MISUSE
    except FlodlError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return FAILED
    return code


class _MisuseError(Exception):
    """Flags that do not go together."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fdl flodl-hf", description="Hugging Face checkpoints as flodl graphs."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_classify(commands)
    _add_convert(commands)
    _add_export(commands)
    _add_verify_export(commands)
    _add_verify_matrix(commands)
    return parser


def _command(
    commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.set_defaults(run=run)
    return parser


def _print(args: argparse.Namespace, value: object, lines: Sequence[str]) -> None:
    sys.stdout.write((json.dumps(value, indent=2) if args.json else "\n".join(lines)) + "\n")


# ----------------------------------------------------------------- classify


def _add_classify(commands: Any) -> None:
    parser = _command(commands, "classify", "score texts with a sequence classifier", _classify)
    parser.add_argument("source", nargs="?", default=DEFAULT_CLASSIFIER, metavar="ID_OR_DIR")
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--top-k", type=int, default=3)


def _classify(args: argparse.Namespace) -> int:
    import torch

    from flodl_hf.auto import AutoModelForSequenceClassification

    dtype = getattr(torch, args.dtype) if args.dtype else None
    head = AutoModelForSequenceClassification.from_pretrained(
        args.source, device=args.device, dtype=dtype
    )
    texts = args.texts or list(SAMPLES)
    scored = [scores[: args.top_k] for scores in head.predict(texts)]
    value = [
        {"text": text, "scores": [{"label": name, "score": score} for name, score in scores]}
        for text, scores in zip(texts, scored, strict=True)
    ]
    lines = [
        f"{text}\n  " + "  ".join(f"{name} {score:.3f}" for name, score in scores)
        for text, scores in zip(texts, scored, strict=True)
    ]
    _print(args, value, lines)
    return DONE


# ----------------------------------------------------------------- convert


def _add_convert(commands: Any) -> None:
    parser = _command(
        commands, "convert", "write the tensors of a pickled file as safetensors", _convert
    )
    parser.add_argument("source", metavar="REPO_OR_DIR_OR_FILE")
    parser.add_argument("--revision")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--force", action="store_true")


def _convert(args: argparse.Namespace) -> int:
    from flodl_hf.heads.files import find_pickle
    from flodl_hf.hub.fetch import HubOptions, converted_folder, locate
    from flodl_hf.weights.convert import convert_pickle

    path = Path(args.source)
    if path.is_file():
        config = path.with_name("config.json")
        target = convert_pickle(
            path,
            args.out or path.parent,
            config=config if config.is_file() else None,
            force=args.force,
        )
    else:
        files = locate(args.source, HubOptions(revision=args.revision))
        config = files.require("config.json")
        pickle = find_pickle(files)
        origin = {"source": files.title}
        out = args.out or config.parent
        if files.repo_id is not None and files.revision is not None:
            origin["revision"] = files.revision
            out = args.out or converted_folder(files.repo_id, files.revision)
        target = convert_pickle(pickle, out, config=config, origin=origin, force=args.force)
    _print(args, {"file": str(target)}, [str(target)])
    return DONE


# ----------------------------------------------------------------- export


def _add_export(commands: Any) -> None:
    parser = _command(commands, "export", "write a model as the reference does", _export)
    parser.add_argument("--hub", metavar="ID", help="repository, or a local directory")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--head", choices=("auto", "base", "seqcls", "tokcls", "qa", "mlm"), default=None
    )
    parser.add_argument("--config", type=Path)
    parser.add_argument("--revision")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--preserve-source-config", action="store_true")


def _export(args: argparse.Namespace) -> int:
    if (args.hub is None) == (args.checkpoint is None):
        raise _MisuseError("export takes --hub or --checkpoint, one of them")
    if args.checkpoint is not None and (args.head or args.revision):
        raise _MisuseError("--head and --revision go with --hub")
    if args.hub is not None and (args.config or args.preserve_source_config):
        raise _MisuseError("--config and --preserve-source-config go with --checkpoint")
    from flodl_hf.export import export_checkpoint, export_source, summary

    if args.hub is not None:
        exported = export_source(
            args.hub, args.out, head=args.head or "auto", revision=args.revision, force=args.force
        )
    else:
        exported = export_checkpoint(
            args.checkpoint,
            args.out,
            config=args.config,
            force=args.force,
            preserve_source_config=args.preserve_source_config,
        )
    lines = [f"{exported.folder}: {exported.head}: {', '.join(exported.files)}", *exported.notes]
    _print(args, summary(exported), lines)
    return DONE


# ----------------------------------------------------------------- verify


def _add_verify_export(commands: Any) -> None:
    for family in (None, *FAMILIES):
        name = "verify-export" if family is None else f"verify-export-{family}"
        parser = _command(commands, name, "check an export against the reference", _verify_export)
        parser.add_argument("folder", type=Path, metavar="DIR")
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--hub-source", metavar="ID")
        source.add_argument("--no-hub-source", action="store_true")
        source.add_argument("--source", type=Path, metavar="DIR")
        parser.add_argument("--prompt")
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
        f"{'FAIL' if found else 'PASS'} {name} {found}" for name, found in report.checks.items()
    ]
    lines += [f"SKIP {name}: {why}" for name, why in report.skipped.items()]
    value = {
        "folder": report.folder,
        "head": report.head,
        "passed": report.passed,
        "checks": report.checks,
        "skipped": report.skipped,
        "difference": report.difference,
    }
    _print(args, value, lines)
    return DONE if report.passed else FAILED


def _add_verify_matrix(commands: Any) -> None:
    parser = _command(
        commands, "verify-matrix", "export and verify every family in every shape", _verify_matrix
    )
    parser.add_argument("--families", help="some of them, with commas")
    parser.add_argument("--heads", help="some of them, with commas")
    parser.add_argument("--offline", action="store_true", help="seeded tiny models, no network")
    parser.add_argument("--keep", action="store_true", help="leave the exports")
    parser.add_argument("--staging-dir", type=Path)


def _verify_matrix(args: argparse.Namespace) -> int:
    from flodl_hf.verify.cells import choose_cells
    from flodl_hf.verify.matrix import grid, run_matrix

    try:
        cells = choose_cells(_split(args.families), _split(args.heads))
    except VerifyError as error:
        raise _MisuseError(error.message) from error
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
    _print(args, value, [grid(results), f"{len(results) - failed} passed, {failed} failed"])
    return FAILED if failed else DONE


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
