"""``fdl autocomplete``: completion in the start-up file of the user's shell."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from flodl_cli.context.application import context_of
from flodl_cli.project.completion import (
    detect_shell,
    install_block,
    remove_block,
    startup_file,
)

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def install(
    ctx: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish"] | None, typer.Argument(help="Yours by default.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take it out again.")] = False,
) -> int:
    """Let the shell complete fdl: two marked lines in its start-up file."""
    context = context_of(ctx.obj)
    chosen = shell or detect_shell(context.environ)
    file = startup_file(chosen, context.environ)
    changed = remove_block(file) if remove else install_block(file, chosen)
    done = "removed from" if remove else "added to"
    already = "not in" if remove else "already in"
    context.terminal.print(f"completion for {chosen} {done if changed else already} {file}")
    if changed and not remove:
        context.terminal.say("start a new shell to have it")
    return 0
