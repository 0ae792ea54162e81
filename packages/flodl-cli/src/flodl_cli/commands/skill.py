"""``fdl skill``: guides for coding assistants, put where they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.context.application import context_of
from flodl_cli.project.skill import Tool, detected, find_skill, skills
from flodl_cli.project.skill import install as install_skill
from flodl_cli.terminal import columns, listed

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    """Hand the guides of flodl to a coding assistant."""
    if ctx.invoked_subcommand is None:
        context_of(ctx.obj).terminal.print(ctx.get_help())


@app.command("list")
def list_command(ctx: typer.Context) -> int:
    """Show the guides, and the tools that this project is set up for."""
    context = context_of(ctx.obj)
    terminal, here = context.terminal, Path(context.directory)
    rows = [(each.name, each.description) for each in skills(here)]
    lines = columns(rows, width=terminal.width, paint=terminal.paint)
    terminal.print("\n".join(["Skills:", *lines, f"Tools found here: {listed(detected(here))}"]))
    return 0


@app.command("install")
def install_command(
    ctx: typer.Context,
    *,
    tool: Annotated[Tool | None, typer.Option(help="Found by its folder if not given.")] = None,
    skill: Annotated[str, typer.Option(help="Which guide.")] = "port",
) -> int:
    """Write a guide where the tools of this project read it."""
    context = context_of(ctx.obj)
    here = Path(context.directory)
    chosen = find_skill(skill, here)
    tools = [tool] if tool is not None else detected(here) or [Tool.GENERIC]
    for each in tools:
        file, changed = install_skill(chosen, each, here)
        context.terminal.print(f"{'wrote' if changed else 'up to date:'} {file}")
    return 0
