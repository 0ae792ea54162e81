"""``fdl nccl build``: the NCCL that another host's torch brings, compiled for the GPUs here."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from flodl_cli.commands.libtorch.build import archs_here
from flodl_cli.commands.libtorch.place import GlobalOption, RootOption, place_of
from flodl_cli.context.application import context_of
from flodl_cli.errors import UsageError
from flodl_cli.libtorch import nccl_build as service
from flodl_cli.libtorch.build import sorted_archs
from flodl_cli.libtorch.coverage import parse_arch
from flodl_sys.gpu import Vendor, scan_gpus

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_FIRST_ARCH_OF_CUDA_13 = (7, 5)


@app.callback(invoke_without_command=True)
def show_help(ctx: typer.Context) -> None:
    """Build the NCCL that other hosts of a run have."""
    if ctx.invoked_subcommand is None:
        context_of(ctx.obj).terminal.print(ctx.get_help())


@app.command("build")
def build_command(
    ctx: typer.Context,
    *,
    tag: Annotated[
        str | None, typer.Option(help="Version, such as v2.27.5-1; that of this torch by default.")
    ] = None,
    archs: Annotated[
        str | None, typer.Option(help='GPUs to compile for, "6.1;12.0"; those here by default.')
    ] = None,
    jobs: Annotated[int, typer.Option(help="Compilers at a time.", min=1)] = 6,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands only.")] = False,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Compile NCCL in a container, to be loaded before that of torch."""
    place = place_of(ctx, root, is_global=is_global)
    if archs is None and _only_amd():
        raise UsageError(
            "NCCL is for NVIDIA's GPUs, and those here are AMD's",
            hint="RCCL ships with the ROCm build of torch",
        )
    tokens = sorted_archs(archs) if archs is not None else archs_here()
    is_old = (parse_arch(tokens[0]) or (0, 0)) < _FIRST_ARCH_OF_CUDA_13
    environ = place.context.environ
    planned = service.NcclPlan(
        tag=service.check_tag(tag) if tag else service.used_tag(place.directory, environ),
        archs=tokens,
        jobs=jobs,
        cuda="12.8" if is_old else "13.0",
    )
    if dry_run:
        commands = service.nccl_commands(
            planned, service.context_folder(place.store), planned.folder(place.store)
        )
        lines = [service.nccl_dockerfile(planned), *map(shlex.join, commands)]
        place.context.terminal.print("\n".join(lines))
        return 0
    library = service.build_nccl(planned, place.store, environ)
    place.context.terminal.say("for fdl.yml, at the command that trains:")
    place.context.terminal.print(f"env:\n  LD_PRELOAD: {library}")
    return 0


def _only_amd() -> bool:
    vendors = {gpu.vendor for gpu in scan_gpus().gpus}
    return bool(vendors) and Vendor.NVIDIA not in vendors
