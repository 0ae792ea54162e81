"""``fdl schema``: the arguments of a project's programs, asked of them and kept."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flodl_cli.config.project import open_project
from flodl_cli.config.tree import Level, Program
from flodl_cli.context.application import AppContext, context_of
from flodl_cli.context.launching import refresh
from flodl_cli.errors import FdlError, UsageError
from flodl_cli.names import near
from flodl_cli.project.schema import (
    cache_file,
    clear_schema,
    known_schema,
    programs_below,
)
from flodl_cli.terminal import listed, shown_path

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    """Ask the programs of a project for their arguments, so that help and checks know them."""
    if ctx.invoked_subcommand is None:
        context_of(ctx.obj).terminal.print(ctx.get_help())


@app.command("list")
def list_command(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """List the programs and whether their arguments are known."""
    context = context_of(ctx.obj)
    rows = [
        (name, cache_file(each), known_schema(each).status) for name, each in _programs(context)
    ]
    if as_json:
        data = [{"name": name, "path": path, "status": status} for name, path, status in rows]
        context.terminal.print(json.dumps(data, indent=2))
        return 0
    width = max((len(name) for name, _, _ in rows), default=0)
    lines = [f"{name:{width}}  {status:6}  {shown_path(path)}" for name, path, status in rows]
    context.terminal.print("\n".join(lines) or "no manifest here has an entry")
    return 0


@app.command("clear")
def clear_command(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None,
) -> int:
    """Forget what is kept, of one command or of all."""
    context = context_of(ctx.obj)
    cleared = [name for name, each in _chosen(context, words) if clear_schema(each)]
    context.terminal.print(f"cleared: {listed(cleared)}")
    return 0


@app.command("refresh")
def refresh_command(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None,
) -> int:
    """Ask one program, or all of them, anew."""
    context = context_of(ctx.obj)
    root = _root(context)
    failed = 0
    for name, program in _chosen(context, words):
        try:
            refresh(program, root.directory, context)
        except FdlError as error:
            failed += 1
            context.terminal.error(error)
        else:
            context.terminal.print(f"{name}: refreshed")
    return 1 if failed else 0


def _root(context: AppContext) -> Level:
    root = open_project(context.directory, context.overlay, context.environ)
    if root is None:
        raise UsageError(
            f"no fdl.yml in {context.directory} or above", hint="go to the project first"
        )
    return root


def _programs(context: AppContext) -> list[tuple[str, Program]]:
    return list(programs_below(_root(context)))


def _chosen(context: AppContext, words: list[str] | None) -> list[tuple[str, Program]]:
    programs = _programs(context)
    if not words:
        return programs
    name = " ".join(words)
    chosen = [pair for pair in programs if pair[0] == name]
    if not chosen:
        names = [each for each, _ in programs]
        close = near(name, names)
        raise UsageError(
            f"{name!r} leads to no entry; those that do: {listed(names)}",
            hint=f"did you mean {' or '.join(close)}?" if close else None,
        )
    return chosen
