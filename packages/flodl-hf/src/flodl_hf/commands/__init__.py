"""``fdl flodl-hf ...``: each command parses, calls one service, and prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flodl.core.errors import FlodlError
from flodl_hf.commands import classify, convert, example, export, parity, verify
from flodl_hf.commands.command import FAILED, MISUSE, MisuseError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 misuse."""
    parser = _parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else MISUSE
    try:
        code: int = args.run(args)
    except MisuseError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        parser.print_usage(sys.stderr)
        return MISUSE
    except FlodlError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fdl flodl-hf", description="Hugging Face checkpoints as flodl graphs."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (classify, convert, export, verify, parity, example):
        module.add_to(commands)
    return parser
