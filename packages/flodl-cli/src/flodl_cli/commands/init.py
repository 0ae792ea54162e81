"""``fdl init``: a new project that trains and tests at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.context.application import AppContext, context_of
from flodl_cli.errors import UsageError
from flodl_cli.host.platform import this_platform
from flodl_cli.host.process import ask
from flodl_cli.libtorch.catalog import load_catalog
from flodl_cli.project.scaffold import Form, Scaffold, check_target, write

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def init_command(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the project and its folder.")],
    *,
    docker: Annotated[
        bool, typer.Option("--docker", help="Images that hold what the project depends on.")
    ] = False,
    native: Annotated[bool, typer.Option("--native", help="Without containers.")] = False,
    with_hf: Annotated[bool, typer.Option("--with-hf", help="Depend on flodl-hf too.")] = False,
    backend: Annotated[
        str | None, typer.Option(help="Build of torch: cpu, cu130, rocm7.2 and the like.")
    ] = None,
    git: Annotated[bool, typer.Option("--git/--no-git", help="Make it a git repository.")] = True,
) -> int:
    """Make a new project: a model, its training, a test, and commands for fdl."""
    context = context_of(ctx.obj)
    if docker and native:
        raise UsageError("--docker and --native exclude each other", hint="give one of them")
    target = check_target(name, Path(context.directory))
    if backend is not None:
        _check_backend(backend)
    form = Form.DOCKER if docker else Form.NATIVE if native else _asked_form(context)
    made = write(Scaffold(target=target, form=form, with_hf=with_hf))
    if backend is not None:
        from flodl_cli.libtorch.metadata import replace_text
        from flodl_cli.project.torch_index import with_backend

        file = target / "pyproject.toml"
        replace_text(file, with_backend(file.read_text(encoding="utf-8"), backend))
    if git and shutil.which("git") is not None:
        ask(["git", "init", "--quiet", str(target)])
    lines = [f"made {target} ({form}):", *(f"  {each}" for each in made)]
    lines += ["next:", f"  cd {name}", *(f"  {each}" for each in _next_steps(form))]
    context.terminal.print("\n".join(lines))
    return 0


def _asked_form(context: AppContext) -> Form:
    """What the user prefers; containers that mount the project when nobody can be asked."""
    answer = context.terminal.ask("Run it in containers: mounted, docker, or native? [mounted]")
    try:
        return Form(answer.lower() or Form.MOUNTED)
    except ValueError as error:
        raise UsageError(
            f"{answer!r} is none of: {', '.join(Form)}", hint="give --docker or --native"
        ) from error


def _check_backend(backend: str) -> None:
    catalog = load_catalog(this_platform())
    legal = [each.name for each in catalog.buckets(catalog.default_version)]
    if backend not in legal:
        raise UsageError(f"--backend {backend}: backends are {', '.join(legal)}")


def _next_steps(form: Form) -> list[str]:
    if form is Form.NATIVE:
        return ["uv sync", "./fdl test", "./fdl run"]
    return ["docker compose build dev", "./fdl test", "./fdl run", "./fdl gpu-run"]
