"""``build``: compiles a libtorch for chosen GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from flodl_cli.commands.libtorch.place import GlobalOption, Place, RootOption, place_of
from flodl_cli.errors import BuildError, UsageError
from flodl_cli.libtorch import build as service
from flodl_cli.libtorch.catalog import load_catalog
from flodl_cli.libtorch.coverage import cuda_token, parse_arch
from flodl_cli.libtorch.versions import wanted_version
from flodl_sys.gpu import Vendor, scan_gpus


def register(app: typer.Typer) -> None:
    """Add the command of this module to ``app``."""
    app.command("build")(build_command)


def build_command(  # noqa: PLR0913 - one parameter for each flag of the command
    ctx: typer.Context,
    *,
    archs: Annotated[
        str | None, typer.Option(help='GPUs to compile for, "6.1;12.0"; those here by default.')
    ] = None,
    jobs: Annotated[int, typer.Option(help="Compilers at a time.")] = 6,
    docker: Annotated[bool, typer.Option("--docker", help="Build in a container.")] = False,
    native: Annotated[bool, typer.Option("--native", help="Build on this machine.")] = False,
    version: Annotated[str | None, typer.Option(help="Version of torch.")] = None,
    cuda: Annotated[
        Literal["12.8", "13.0"] | None, typer.Option(help="CUDA version of the container.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands only.")] = False,
    activate: Annotated[bool, typer.Option("--activate/--no-activate")] = True,
    root: RootOption = None,
    is_global: GlobalOption = False,
) -> int:
    """Compile a libtorch for your GPUs. Expect two to six hours."""
    place = place_of(ctx, root, is_global=is_global)
    if docker and native:
        raise UsageError("--docker and --native exclude each other", hint="give one of them")
    tokens = service.sorted_archs(archs) if archs is not None else archs_here()
    oldest = parse_arch(tokens[0]) or (0, 0)
    catalog = load_catalog(place.platform)
    planned = service.BuildPlan(
        archs=tokens,
        jobs=jobs,
        version=version or wanted_version(place.directory, catalog).version,
        cuda=cuda or ("12.8" if oldest < (7, 5) else "13.0"),
        docker=docker or (not native and _prefers_docker(place)),
    )
    service.check_plan(planned)
    if dry_run:
        place.show(_commands(planned, place))
        return 0
    place.context.terminal.say(
        f"compiling torch {planned.version} for {' '.join(planned.archs)}: two to six hours; "
        "the same command goes on where it was stopped"
    )
    variant = service.build(planned, place.store, place.context.environ)
    if activate:
        place.store.activate(variant.id)
    place.show(f"{variant.id}{' (active)' if activate else ''}: torch {variant.metadata.torch}")
    return 0


def archs_here() -> tuple[str, ...]:
    """The architectures of the GPUs of this machine.

    Raises:
        UsageError: There are none, or only AMD's.
    """
    gpus = scan_gpus().gpus
    nvidia = [gpu.arch for gpu in gpus if gpu.vendor is Vendor.NVIDIA and gpu.arch is not None]
    if not nvidia and gpus:
        raise UsageError(
            "only CUDA builds can be compiled, and the GPUs here are AMD's",
            hint="fdl libtorch download --rocm 7.2 has code for them",
        )
    if not nvidia:
        raise UsageError("no GPU is found here", hint='name the GPUs: --archs "6.1;12.0"')
    return service.sorted_archs(";".join(cuda_token(arch) for arch in nvidia))


def _prefers_docker(place: Place) -> bool:
    """Docker when it runs; on a terminal the user is asked when this machine could build too."""
    if not service.docker_works():
        if service.missing_tools():
            raise BuildError(
                "Docker does not answer, and this machine lacks "
                + "; ".join(service.missing_tools()),
                hint="start Docker, or install what is missing",
            )
        return False
    if service.missing_tools():
        return True
    return place.context.terminal.confirm("Build in a container?", default=True)


def _commands(planned: service.BuildPlan, place: Place) -> str:
    import shlex

    if planned.docker:
        context = service.context_folder(place.store)
        commands = service.docker_commands(planned, context, place.store.root / planned.variant_id)
        head = [service.dockerfile(planned)]
    else:
        commands = service.native_commands(planned, service.source_folder(planned, place.store))
        head = [f"{name}={shlex.quote(value)}" for name, value in planned.settings.items()]
    return "\n".join([*head, *(shlex.join(command) for command in commands)])
