"""``fdl torch``: which build of torch a project has, and which one it takes."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.context.application import AppContext, context_of
from flodl_cli.errors import FdlError, UsageError
from flodl_cli.host.driver import nvidia_driver
from flodl_cli.host.platform import this_platform
from flodl_cli.libtorch.catalog import load_catalog
from flodl_cli.libtorch.choose import choose
from flodl_cli.libtorch.coverage import uncovered
from flodl_cli.libtorch.diagnosis import environment_install
from flodl_cli.libtorch.metadata import replace_text
from flodl_cli.libtorch.versions import wanted_version
from flodl_sys.gpu import Vendor, scan_gpus

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_AUTO = "auto"


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    """Show or choose the build of torch that a project uses."""
    if ctx.invoked_subcommand is None:
        context_of(ctx.obj).terminal.print(ctx.get_help())


@app.command("show")
def show_command(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say which torch the project's environment has; it is not imported."""
    context = context_of(ctx.obj)
    root = _project(context)
    installed = environment_install(root, context.environ)
    if installed is None:
        raise FdlError(
            f"no torch in {root / '.venv'} or the active environment", hint="uv sync, then again"
        )
    gpus = [gpu.arch for gpu in scan_gpus().gpus if gpu.arch is not None]
    missing = uncovered(installed.archs, gpus)
    if as_json:
        data = {**asdict(installed), "covers_gpus": not missing if gpus else None}
        context.terminal.print(json.dumps(data, indent=2))
        return 0
    covers = "no GPU here" if not gpus else f"not {' '.join(missing)}" if missing else "all here"
    rows = [
        ("Version", installed.version),
        ("Vendor", installed.vendor),
        ("CUDA", installed.cuda or "none"),
        ("Archs", " ".join(installed.archs) or "none"),
        ("Covers", covers),
        ("Path", installed.path),
    ]
    context.terminal.print("\n".join(f"{name + ':':9}{value}" for name, value in rows))
    return 0


@app.command("use")
def use_command(
    ctx: typer.Context,
    backend: Annotated[str, typer.Argument(help="auto, cpu, cu130, rocm7.2 and the like.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change only.")] = False,
) -> int:
    """Make uv take torch from the wheels of one backend, in pyproject.toml."""
    from flodl_cli.project.torch_index import depends_on_torch, with_backend

    context = context_of(ctx.obj)
    chosen = _backend(backend, context)
    file = _project(context) / "pyproject.toml"
    before = file.read_text(encoding="utf-8")
    after = with_backend(before, chosen)
    if after == before:
        context.terminal.print(f"{file.name} says so already")
        return 0
    changes = difflib.unified_diff(
        before.splitlines(), after.splitlines(), file.name, file.name, lineterm=""
    )
    context.terminal.print("\n".join(changes))
    if not dry_run:
        replace_text(file, after)
        if not depends_on_torch(after):
            context.terminal.note(
                "torch is not among the dependencies of the project, and uv heeds the index only "
                "for those: uv add torch"
            )
        context.terminal.say("next: uv sync")
    return 0


def _backend(asked: str, context: AppContext) -> str:
    catalog = load_catalog(this_platform())
    version = wanted_version(Path(context.directory), catalog).version
    if asked == _AUTO:
        gpus = scan_gpus().gpus
        has_nvidia = any(gpu.vendor is Vendor.NVIDIA for gpu in gpus)
        choice = choose(gpus, nvidia_driver() if has_nvidia else None, catalog, version)
        context.terminal.say(f"{choice.bucket.name}: {'; '.join(choice.reasons)}")
        return choice.bucket.name
    legal = [each.name for each in catalog.buckets(version)]
    if asked not in legal:
        raise UsageError(
            f"{asked!r} is no backend of torch {version}; backends: {', '.join([_AUTO, *legal])}"
        )
    return asked


def _project(context: AppContext) -> Path:
    here = Path(context.directory)
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").is_file():
            return folder
    raise UsageError(
        f"no pyproject.toml in {here} or above", hint="go to the project whose torch it is"
    )
