"""``fdl setup``: looks at the machine, then gets the torch or libtorch that suits it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from flodl_cli.commands.libtorch.build import build_command
from flodl_cli.commands.libtorch.download import download_command
from flodl_cli.commands.libtorch.link import link_command
from flodl_cli.commands.torch import use_command
from flodl_cli.context.application import AppContext, context_of
from flodl_cli.errors import FdlError, UsageError
from flodl_cli.host.platform import this_platform
from flodl_cli.host.process import run_child
from flodl_cli.host.system import System, this_system
from flodl_cli.libtorch.active import active_variant
from flodl_cli.libtorch.build import docker_works
from flodl_cli.libtorch.catalog import Bucket, load_catalog, version_key
from flodl_cli.libtorch.coverage import covers, cuda_token, uncovered
from flodl_cli.libtorch.home import find_home
from flodl_cli.libtorch.versions import wanted_version
from flodl_cli.runner.docker import find_compose
from flodl_sys import names as variables
from flodl_sys.gpu import Vendor, scan_gpus

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def setup_command(
    ctx: typer.Context,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", "--non-interactive", help="Ask nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the libtorch that is active.")
    ] = False,
) -> int:
    """Look at this machine, then get the torch or libtorch that suits it."""
    context = context_of(ctx.obj)
    asks = context.terminal.is_interactive and not yes
    system = this_system()
    _tell_system(context, system)
    home = find_home(Path(context.directory), context.environ)
    if home.kind == "project" and (home.path / "pyproject.toml").is_file():
        _set_up_project(ctx, context, home.path, system)
        return _build_images(context, home.path, asks=asks)
    return _set_up_libtorch(ctx, context, asks=asks, force=force)


def _tell_system(context: AppContext, system: System) -> None:
    """Step 1.

    Raises:
        FdlError: Nothing here could install anything.
    """
    memory = f", {system.ram_gb} GiB" if system.ram_gb is not None else ""
    gpus = scan_gpus().gpus
    lines = [
        f"1. {system.cpu}, {system.threads} threads{memory}",
        f"   {system.os}{' (WSL)' if system.wsl else ''}",
        f"   Docker {system.docker or 'not found'}, uv {system.uv or 'not found'}, "
        f"Python {system.python}",
        *(f"   GPU {gpu.index}: {gpu.name} ({gpu.arch or 'unknown'})" for gpu in gpus),
        *(["   no GPU"] if not gpus else []),
    ]
    context.terminal.print("\n".join(lines))
    if (
        system.uv is None
        and system.docker is None
        and not (shutil.which("pip") or shutil.which("pip3"))
    ):
        raise FdlError(
            "neither uv, pip nor Docker is here, and one of them is needed",
            hint="install uv: https://docs.astral.sh/uv/getting-started/installation/",
        )


def _set_up_project(ctx: typer.Context, context: AppContext, root: Path, system: System) -> None:
    """Step 2 inside a project: the wheels of torch, and its libtorch as a variant."""
    context.terminal.print("2. torch of the project")
    use_command(ctx, "auto")
    if system.uv is None:
        context.terminal.note("uv is not here: install what pyproject.toml asks for yourself")
        return
    code = run_child(["uv", "sync"], directory=str(root), env=dict(context.environ))
    if code != 0:
        raise FdlError(
            f"uv sync ended with {code}", hint="its output says why; then run setup again"
        )
    link_command(ctx)


def _set_up_libtorch(ctx: typer.Context, context: AppContext, *, asks: bool, force: bool) -> int:
    """Step 2 outside a project: a libtorch for all of this user's programs."""
    terminal = context.terminal
    terminal.print("2. libtorch")
    active = active_variant(Path(context.directory), context.environ)
    if active is not None and active.metadata.vendor != "cpu" and not force:
        question = f"{active.id} (torch {active.metadata.torch}) is active. Replace it?"
        if not (asks and terminal.confirm(question, default=False)):
            terminal.print(
                f"   {active.id} (torch {active.metadata.torch}) stays; --force replaces it"
            )
            return 0
    mixed = _mixed_builds(context) if asks else None
    if mixed is None:
        return _download(ctx, context, force=force)
    return _choose_for_mixed(ctx, context, mixed, force=force)


def _download(
    ctx: typer.Context, context: AppContext, *, force: bool, cuda: str | None = None
) -> int:
    mirror = context.environ.get(variables.LIBTORCH_MIRROR.name)
    return download_command(ctx, cuda=cuda, is_global=True, force=force, mirror=mirror)


class _Mixed(NamedTuple):
    """GPUs that no published build covers together, and the builds for either end of them."""

    archs: str
    newest: Bucket
    older: Bucket


def _mixed_builds(context: AppContext) -> _Mixed | None:
    """The builds to choose among, or ``None`` when one covers all cards."""
    gpus = [gpu for gpu in scan_gpus().gpus if gpu.vendor is Vendor.NVIDIA and gpu.arch]
    archs = sorted({cuda_token(gpu.arch) for gpu in gpus if gpu.arch}, key=version_key)
    catalog = load_catalog(this_platform())
    version = wanted_version(Path(context.directory), catalog).version
    cuda = [each for each in catalog.buckets(version) if each.cuda]
    found = sorted((gpu.arch for gpu in gpus if gpu.arch), key=lambda a: version_key(cuda_token(a)))
    if not found or any(not uncovered(each.archs, found) for each in cuda):
        return None
    newest = [each for each in cuda if any(covers(token, found[-1]) for token in each.archs)]
    return _Mixed(";".join(archs), (newest or cuda)[-1], cuda[0])


def _choose_for_mixed(
    ctx: typer.Context, context: AppContext, mixed: _Mixed, *, force: bool
) -> int:
    terminal = context.terminal
    terminal.print(
        f"   no published build covers all GPUs here ({mixed.archs}):\n"
        f"   build   compile one for all of them, two to six hours\n"
        f"   newest  {mixed.newest.name}: older cards stay idle\n"
        f"   older   {mixed.older.name}: newer cards stay idle\n"
        "   skip    nothing now"
    )
    answer = terminal.ask("Which one? [skip]").lower() or "skip"
    match answer:
        case "build":
            return build_command(ctx, archs=mixed.archs, is_global=True)
        case "newest" | "older":
            bucket = mixed.newest if answer == "newest" else mixed.older
            return _download(ctx, context, cuda=bucket.cuda, force=force)
        case "skip":
            terminal.print("   skipped: fdl libtorch download, or fdl setup again")
            return 0
        case _:
            raise UsageError(f"{answer!r} is none of: build, newest, older, skip")


def _build_images(context: AppContext, root: Path, *, asks: bool) -> int:
    """Step 3: the images of the compose file that fit the GPUs here."""
    terminal = context.terminal
    try:
        compose = find_compose(str(root))
    except FdlError:
        return 0
    if not docker_works():
        terminal.note("there is a compose file, and Docker does not answer: no image is built")
        return 0
    vendors = {gpu.vendor.value for gpu in scan_gpus().gpus}
    wanted = [
        "dev",
        *(["cuda"] if "nvidia" in vendors else []),
        *(["rocm"] if "amd" in vendors else []),
    ]
    services = [name for name in wanted if name in compose.roots]
    if not services or (asks and not terminal.confirm("Build the images too?", default=True)):
        return 0
    terminal.print(f"3. images: {', '.join(services)}")
    env = {**context.environ, variables.PROJECT_ROOT.name: str(root)}
    command = ["docker", "compose", "build", *services]
    code = run_child(command, directory=compose.directory, env=env)
    if code != 0:
        terminal.note(f"docker compose build ended with {code}: the images are not there yet")
        return 1
    return 0
