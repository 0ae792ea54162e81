"""``link``: registers a libtorch that is already on the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.commands.libtorch.place import GlobalOption, RootOption, place_of
from flodl_cli.errors import LibtorchError, UsageError
from flodl_cli.libtorch.wheel import find_prefix, find_wheel, link, search


def register(app: typer.Typer) -> None:
    """Add the command of this module to ``app``."""
    app.command("link")(link_command)


def link_command(
    ctx: typer.Context,
    python: Annotated[
        str | None, typer.Option(help="Interpreter whose torch wheel to use.")
    ] = None,
    prefix: Annotated[
        Path | None, typer.Option(help="Folder with lib and include: conda, a system, a build.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the variant.")] = None,
    activate: Annotated[bool, typer.Option("--activate/--no-activate")] = True,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Use a libtorch that is here already. The one of a torch wheel, of conda or of a system."""
    place = place_of(ctx, root, is_global=is_global)
    if python is not None and prefix is not None:
        raise UsageError("--python and --prefix name two places", hint="give one of them")
    if prefix is not None:
        found = find_prefix(prefix)
    elif python is not None:
        wheel = find_wheel(python)
        if wheel is None:
            raise LibtorchError(
                f"{python} has no torch with a libtorch in it", hint="install torch there first"
            )
        found = wheel
    else:
        found = search(place.directory, place.context.environ)
    variant = link(place.store, found, place.platform, name=name)
    if activate:
        place.store.activate(variant.id)
    state = " (active)" if activate else ""
    place.show(f"linked {variant.id}{state}: torch {variant.metadata.torch} in {found.prefix}")
    return 0
