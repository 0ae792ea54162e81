"""Flags of a program, declared once as a dataclass: parser, help, and the schema that fdl reads.

Standard library only, so that a program can answer ``--fdl-schema`` before it imports anything
heavy; each name comes from its module on first use.

Examples:
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Args:
    ...     epochs: int = 3
    >>> parse(Args, ["--epochs", "5"])
    Args(epochs=5)
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flodl_cli.args.adapters import add_fdl_schema as add_fdl_schema
    from flodl_cli.args.adapters import schema_from_argparse as schema_from_argparse
    from flodl_cli.args.adapters import schema_from_typer as schema_from_typer
    from flodl_cli.args.declare import arg as arg
    from flodl_cli.args.declare import option as option
    from flodl_cli.args.declare import schema_of as schema_of
    from flodl_cli.args.program import parse as parse
    from flodl_cli.args.program import parse_or_schema as parse_or_schema

_MODULES = {
    "add_fdl_schema": "adapters",
    "arg": "declare",
    "option": "declare",
    "parse": "program",
    "parse_or_schema": "program",
    "schema_from_argparse": "adapters",
    "schema_from_typer": "adapters",
    "schema_of": "declare",
}

__all__ = [
    "add_fdl_schema",
    "arg",
    "option",
    "parse",
    "parse_or_schema",
    "schema_from_argparse",
    "schema_from_typer",
    "schema_of",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
