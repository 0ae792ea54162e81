"""What every command has: ``--json``, printed values, exit codes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

DONE, FAILED, MISUSE = 0, 1, 2


class MisuseError(Exception):
    """Flags that do not go together."""


def command(
    commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Return the parser of a new command that is carried out by ``run``."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.set_defaults(run=run)
    return parser


def positive(text: str) -> int:
    """Return a whole number of at least 1; ``argparse`` says what is wrong with another."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 or more")
    return value


def show(args: argparse.Namespace, value: object, lines: Sequence[str]) -> None:
    """Print a value as JSON where that was asked for, else as lines."""
    sys.stdout.write((json.dumps(value, indent=2) if args.json else "\n".join(lines)) + "\n")


def split(text: str | None) -> list[str] | None:
    """Return the words between commas; ``None`` when there is no text."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
