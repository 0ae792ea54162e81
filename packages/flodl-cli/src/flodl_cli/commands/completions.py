"""``fdl completions``: the completion script of a shell."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from flodl_cli.context.application import context_of
from flodl_cli.project.completion import completion_script

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def print_script(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish", "powershell"], typer.Argument()],
) -> int:
    """Print the completion script of a shell, to be evaluated when it starts."""
    context_of(ctx.obj).terminal.print(completion_script(shell))
    return 0
