"""``fdl install``: fdl itself on the PATH of the user, and whether a newer one is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flodl_cli import __version__
from flodl_cli.context.application import AppContext, context_of
from flodl_cli.errors import UsageError
from flodl_cli.host.packages import package_client
from flodl_cli.updates.check import CLI, is_newer
from flodl_cli.updates.installation import (
    find_checkout,
    install,
    install_checkout,
    path_line,
    this_installation,
)

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def install_command(
    ctx: typer.Context,
    *,
    check: Annotated[bool, typer.Option("--check", help="Only say what is here.")] = False,
    dev: Annotated[bool, typer.Option("--dev", help="The fdl of this checkout.")] = False,
) -> int:
    """Put fdl on your PATH, as uv, pipx or a small launcher does it."""
    context = context_of(ctx.obj)
    if check and dev:
        raise UsageError("--check and --dev exclude each other", hint="give one of them")
    if check:
        return _check(context)
    if dev:
        checkout = find_checkout(Path(context.directory))
        if checkout is None:
            raise UsageError(
                f"--dev: {context.directory} is not inside a checkout of flodl",
                hint="go to one, or leave --dev out",
            )
        done = install_checkout(checkout, context.environ)
    else:
        done = install(context.environ)
    context.terminal.print(f"installed by {done.means}: {done.program}")
    line = path_line(done.program.parent, context.environ)
    if line is not None:
        context.terminal.say(f"{done.program.parent} is not on your PATH; add this line:\n  {line}")
    return 0


def _check(context: AppContext) -> int:
    here = this_installation()
    # What is here is worth knowing also where the index does not answer.
    context.terminal.print(f"Installed: {__version__}\nMode:      {here.mode} ({here.place})")
    latest = package_client().newest(CLI)
    state = "a newer one is out: fdl install" if is_newer(latest, __version__) else "up to date"
    context.terminal.print(f"Latest:    {latest} ({state})")
    return 0
