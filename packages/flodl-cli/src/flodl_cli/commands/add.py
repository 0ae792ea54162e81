"""``fdl add``: flodl-hf as a dependency of this project, or as a playground beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.context.application import AppContext, context_of
from flodl_cli.errors import FdlError, UsageError
from flodl_cli.host.process import ask
from flodl_cli.libtorch.metadata import replace_text
from flodl_cli.project import playground
from flodl_cli.project.dependency import depends_on, flodl_version, with_dependency

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PACKAGE = "flodl-hf"
_NAMES = (_PACKAGE, "hf")


@app.command()
def add_command(
    ctx: typer.Context,
    package: Annotated[str, typer.Argument(help="flodl-hf, or hf for short.")],
    *,
    try_it: Annotated[
        bool, typer.Option("--playground", help="A folder to try it in, with examples.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Pin it as a dependency of this project.")
    ] = False,
) -> int:
    """Bring flodl-hf, at the version of this project's flodl, into the project."""
    context = context_of(ctx.obj)
    if package not in _NAMES:
        raise UsageError(f"{package!r} cannot be added; what can: {_PACKAGE} (or hf)")
    root = _project(Path(context.directory))
    version = flodl_version(root)
    playground.manifests(root)
    if not try_it and not install:
        try_it, install = _asked(context)
    if try_it:
        _make_playground(root, version, context)
    if install:
        _install(root, version, context)
    return 0


def _asked(context: AppContext) -> tuple[bool, bool]:
    if not context.terminal.is_interactive:
        raise UsageError(
            "what to do with flodl-hf is not said, and nobody can be asked",
            hint="give --playground, --install, or both",
        )
    answer = context.terminal.ask("playground, install, both, or cancel? [playground]").lower()
    chosen = answer or "playground"
    if chosen == "cancel":
        raise KeyboardInterrupt
    if chosen not in ("playground", "install", "both"):
        raise UsageError(f"{answer!r} is none of: playground, install, both, cancel")
    return chosen in ("playground", "both"), chosen in ("install", "both")


def _make_playground(root: Path, version: str, context: AppContext) -> None:
    made = playground.write(root, version)
    lines = [f"made {root / playground.FOLDER} for flodl-hf {version}:"]
    lines += [f"  {each}" for each in made]
    lines += ["next:", "  fdl flodl-hf", "  fdl flodl-hf classify"]
    context.terminal.print("\n".join(lines))


def _install(root: Path, version: str, context: AppContext) -> None:
    if depends_on(root, _PACKAGE):
        context.terminal.print(f"{root / 'pyproject.toml'} depends on {_PACKAGE} already")
        return
    requirement = f"{_PACKAGE}[full]=={version}"
    uv = shutil.which("uv")
    if uv is not None:
        answer = ask([uv, "add", requirement], directory=str(root))
        if answer.code != 0:
            raise FdlError(
                f"uv add {requirement} failed: {answer.err.strip() or 'it gave no reason'}",
                hint="what it says is about its index, its proxy or the network",
            )
        context.terminal.print(f"added {requirement}")
        return
    file = root / "pyproject.toml"
    replace_text(file, with_dependency(file.read_text(encoding="utf-8"), requirement))
    context.terminal.print(f"added {requirement} to {file}")
    context.terminal.note("uv is not on PATH: install the dependencies the way you always do")


def _project(here: Path) -> Path:
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").is_file():
            return folder
    raise UsageError(
        f"no pyproject.toml in {here} or above", hint="make a project with `fdl init NAME`"
    )
