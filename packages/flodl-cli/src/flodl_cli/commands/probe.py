"""``fdl probe``: whether this host is ready to train."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from flodl_cli.config.discover import find_manifest
from flodl_cli.config.layers import load_layers
from flodl_cli.context.application import AppContext, context_of
from flodl_cli.errors import FdlError
from flodl_cli.host.driver import nvidia_driver
from flodl_cli.host.system import this_system
from flodl_cli.libtorch.build import docker_works
from flodl_cli.libtorch.diagnosis import Diagnosis, Machine, diagnose, installed_in
from flodl_cli.libtorch.home import find_home
from flodl_cli.libtorch.readiness import Readiness, Wishes, assess
from flodl_cli.runner.docker import find_compose
from flodl_sys import names as variables
from flodl_sys.gpu import Vendor, scan_gpus

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_DATA = Path("/flodl/data")
_PORT = 1337
_LABEL = 9  # columns of a label


@app.command()
def probe_command(
    ctx: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    skip_mount: Annotated[
        bool, typer.Option("--skip-mount", help="Leave out the shared data.")
    ] = False,
    data_path: Annotated[Path | None, typer.Option(help="Folder of the shared data.")] = None,
    libtorch_path: Annotated[
        Path | None, typer.Option(help="Folder of the libtorch that will be used.")
    ] = None,
    docker: Annotated[str | None, typer.Option(help="Compose service that will be used.")] = None,
    port: Annotated[int, typer.Option(help="Port of the controller.", min=1, max=65535)] = _PORT,
) -> int:
    """Check that this host is ready to train. It ends with 1 when something is in the way."""
    context = context_of(ctx.obj)
    named = data_path or _path_of(context.environ, variables.DATA_PATH.name)
    wishes = Wishes(
        host=platform.node(),
        port=port,
        data_path=None if skip_mount else named or _DATA,
        data_is_named=named is not None,
        service=docker,
        docker_works=docker is not None and docker_works(),
        services=_services(context) if docker is not None else (),
        blocks=_blocks(context),
    )
    found = assess(_diagnosis(context, libtorch_path), wishes)
    if as_json:
        context.terminal.print(json.dumps(found.as_data(), indent=2))
    else:
        context.terminal.report(_report(found), indent=_LABEL)
    return 1 if found.issues else 0


def _diagnosis(context: AppContext, libtorch_path: Path | None) -> Diagnosis:
    scan = scan_gpus()
    has_nvidia = any(gpu.vendor is Vendor.NVIDIA for gpu in scan.gpus)
    machine = Machine(
        system=this_system(), scan=scan, driver=nvidia_driver() if has_nvidia else None
    )
    home = find_home(Path(context.directory), context.environ)
    case = context.environ.get(variables.LIBTORCH_CASE.name, "")
    found = diagnose(home, machine, context.environ, case=case)
    return found if libtorch_path is None else found.with_libtorch(installed_in(libtorch_path))


def _blocks(context: AppContext) -> Mapping[str, Any]:
    """The ``join`` and ``publish`` blocks of the project."""
    manifest = find_manifest(context.directory)
    if manifest is None:
        return {}
    data = load_layers(manifest, context.overlay).document.data
    return {name: data[name] for name in ("join", "publish") if data.get(name)}


def _services(context: AppContext) -> tuple[str, ...]:
    try:
        return tuple(find_compose(context.directory).roots)
    except FdlError:
        return ()


def _path_of(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def _report(found: Readiness) -> str:
    used = found.diagnosis.used
    data = found.data_path
    rows = [
        ("host", found.host),
        *(("gpu", f"{gpu.index}: {gpu.name} ({gpu.arch or 'unknown'})")
          for gpu in found.diagnosis.machine.scan.gpus),
        ("torch", f"{used.version} ({used.vendor}) in {used.path}" if used else "none"),
        ("nccl", f"{found.nccl['version']} in {found.nccl['path']}" if found.nccl else "none"),
    ]  # fmt: skip
    if data is not None:
        state = data["filesystem"] or ("there" if data["exists"] else "not there")
        rows.append(("data", f"{data['path']} ({state})"))
    lines = [f"{name + ':':{_LABEL}}{text}" for name, text in rows]
    lines += [f"error:   {issue}" for issue in found.issues]
    lines += [f"warning: {warning}" for warning in found.warnings]
    return "\n".join([*lines, f"verdict: {found.verdict}"])
