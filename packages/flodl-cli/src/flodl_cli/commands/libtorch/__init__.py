"""``fdl libtorch``: the manager of libtorch variants, for this project or for all of a user's."""

from __future__ import annotations

import typer

from flodl_cli.commands.libtorch import build, download, glue, health, link, manage
from flodl_cli.context.application import context_of

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    """Install libtorch variants side by side, and help tch-rs, C++ and CMake find one."""
    if ctx.invoked_subcommand is None:
        context_of(ctx.obj).terminal.print(ctx.get_help())


for module in (download, link, manage, glue, health, build):
    module.register(app)
