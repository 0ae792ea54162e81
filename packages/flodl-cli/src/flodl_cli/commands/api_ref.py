"""``fdl api-ref``: what flodl offers, for people and for programs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.context.application import context_of
from flodl_cli.project.api_reference import Entry, Signature, find_source, reference
from flodl_cli.terminal import Paint, wrap

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def api_ref_command(
    ctx: typer.Context,
    path: Annotated[
        Path | None, typer.Option("--path", help="Folder of a flodl; this project's if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List the public classes and functions of flodl with their signatures."""
    context = context_of(ctx.obj)
    source = find_source(path, Path(context.directory), context.environ)
    entries = reference(source)
    if as_json:
        data = {"version": source.version, "types": [asdict(each) for each in entries]}
        context.terminal.print(json.dumps(data, indent=2))
        return 0
    terminal = context.terminal
    terminal.print("\n".join(_listing(source.version, entries, terminal.width, terminal.paint)))
    return 0


def _listing(version: str, entries: Sequence[Entry], width: int, paint: Paint) -> Iterator[str]:
    yield f"flodl {version}: {len(entries)} public classes and functions"
    for area, group in itertools.groupby(entries, key=lambda each: each.category):
        yield ""
        yield paint.heading(area)
        for entry in group:
            bases = f" [{', '.join(entry.bases)}]" if entry.bases else ""
            yield from _hanging(f"{entry.name}{entry.signature}{bases}", width, 2, 6)
            yield from (" " * 6 + line for line in wrap(entry.doc, width - 6))
            yield paint.aside(f"      {entry.file}")
            for method in (*entry.constructors, *entry.builder, *entry.methods):
                yield from _method(method, width)


def _method(method: Signature, width: int) -> Iterator[str]:
    yield from _hanging(f".{method.name}{method.signature}", width, 6, 10)
    yield from (" " * 10 + line for line in wrap(method.doc, width - 10))


def _hanging(text: str, width: int, first: int, more: int) -> Iterator[str]:
    for index, line in enumerate(wrap(text, width - more)):
        yield " " * (more if index else first) + line
