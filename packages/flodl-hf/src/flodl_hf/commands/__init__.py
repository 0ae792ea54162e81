"""``fdl flodl-hf ...``: each command parses, calls one service, and prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from flodl.core.errors import FlodlError
from flodl_hf.commands import classify, convert, example, export, parity, verify
from flodl_hf.commands.command import FAILED, MISUSE, MisuseError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 misuse."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser, commands = _parsers()
    chosen = commands.get(words[0]) if words else None
    try:
        # A command's own parser also takes texts that come after its flags.
        args = (
            parser.parse_args(words) if chosen is None else chosen.parse_intermixed_args(words[1:])
        )
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else MISUSE
    try:
        code: int = args.run(args)
    except MisuseError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        (chosen or parser).print_usage(sys.stderr)
        return MISUSE
    except (FlodlError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return FAILED
    return code


def _parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of all commands, and that of each by its name."""
    parser = argparse.ArgumentParser(
        prog="fdl flodl-hf",
        description="Hugging Face checkpoints as flodl graphs.",
        epilog="'fdl flodl-hf COMMAND --help' shows what a command takes.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (classify, convert, export, verify, parity, example):
        module.add_to(commands)
    return parser, commands.choices
