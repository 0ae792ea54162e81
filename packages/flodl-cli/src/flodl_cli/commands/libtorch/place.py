"""What all ``fdl libtorch`` commands share: which folder they are about, and for which machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from flodl_cli.context.application import AppContext, context_of
from flodl_cli.host.platform import Platform, this_platform
from flodl_cli.libtorch.home import Home, find_home
from flodl_cli.libtorch.store import Store
from flodl_sys import names as variables

_INDENT = 5  # of what does not fit into the line of a report

RootOption: TypeAlias = Annotated[
    Path | None, typer.Option("--root", help="Folder that holds libtorch/, instead of the project.")
]
GlobalOption: TypeAlias = Annotated[
    bool, typer.Option("--global", help="Use $FLODL_HOME or ~/.flodl, even inside a project.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
VariantArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="VARIANT", help="Variant; the active one by default.")
]


class Place(NamedTuple):
    """The folder a command is about, and what it may use to work on it."""

    context: AppContext
    home: Home
    store: Store
    platform: Platform

    @property
    def directory(self) -> Path:
        """Where the call was made."""
        return Path(self.context.directory)

    def show(self, text: str) -> None:
        """Print a report for people, led by the folder it is about."""
        self.context.terminal.report(f"Context: {self.home}\n{text}", indent=_INDENT)

    def print_json(self, data: Any) -> None:
        """Print data for programs."""
        self.context.terminal.print(json.dumps(data, indent=2))


def place_of(ctx: typer.Context, root: Path | None, *, is_global: bool) -> Place:
    """The place of a call."""
    context = context_of(ctx.obj)
    home = find_home(Path(context.directory), context.environ, root=root, is_global=is_global)
    case = context.environ.get(variables.LIBTORCH_CASE.name, "")
    return Place(context, home, Store(home.libtorch, case=case), this_platform())
