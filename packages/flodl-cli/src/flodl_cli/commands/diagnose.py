"""``fdl diagnose``: what this machine has, and what does not fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flodl_cli.context.application import context_of
from flodl_cli.host.driver import nvidia_driver
from flodl_cli.host.system import System, this_system
from flodl_cli.libtorch.diagnosis import Diagnosis, Installed, Machine, diagnose, spoken_arch
from flodl_cli.libtorch.home import find_home
from flodl_sys import names as variables
from flodl_sys.gpu import GpuInfo, Vendor, scan_gpus

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_GIB = 1 << 30


@app.command()
def diagnose_command(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 1 when there are warnings.")
    ] = False,
) -> int:
    """Report on this machine: GPUs, torch, libtorch, and what does not fit together."""
    context = context_of(ctx.obj)
    scan = scan_gpus()
    has_nvidia = any(gpu.vendor is Vendor.NVIDIA for gpu in scan.gpus)
    machine = Machine(
        system=this_system(), scan=scan, driver=nvidia_driver() if has_nvidia else None
    )
    home = find_home(Path(context.directory), context.environ)
    case = context.environ.get(variables.LIBTORCH_CASE.name, "")
    found = diagnose(home, machine, context.environ, case=case)
    if as_json:
        context.terminal.print(json.dumps(found.as_data(), indent=2))
    else:
        context.terminal.report(_report(found), indent=2)
    return 1 if strict and found.warnings else 0


def _report(found: Diagnosis) -> str:
    gpus = found.machine.scan.gpus
    sections = [
        ("System", _system(found.machine.system)),
        ("GPUs", [_gpu(each) for each in gpus] or ["none found"]),
        ("torch", _installed(found.torch) if found.torch else ["none in the environment"]),
        ("libtorch", _installed(found.libtorch) if found.libtorch else ["none active"]),
        ("Compatibility", [_compatibility(found, each) for each in gpus]),
        ("Warnings", list(found.warnings)),
    ]
    lines = [f"Context: {found.home}"]
    if found.machine.driver is not None:
        sections[1][1].append(f"driver {found.machine.driver}")
    for title, rows in sections:
        if rows:
            lines += ["", f"{title}:", *(f"  {row}" for row in rows)]
    return "\n".join(lines)


def _system(system: System) -> list[str]:
    memory = f", {system.ram_gb} GiB" if system.ram_gb is not None else ""
    tools = [("Docker", system.docker), ("uv", system.uv), ("Python", system.python)]
    return [
        f"{system.cpu}, {system.threads} threads{memory}",
        system.os + (" (WSL)" if system.wsl else ""),
        ", ".join(f"{name} {version or 'not found'}" for name, version in tools),
    ]


def _gpu(gpu: GpuInfo) -> str:
    memory = f", {gpu.vram_bytes / _GIB:.1f} GiB" if gpu.vram_bytes is not None else ""
    return f"{gpu.index}: {gpu.name} ({gpu.arch or 'unknown'}{memory})"


def _installed(installed: Installed) -> list[str]:
    build = f"CUDA {installed.cuda}" if installed.cuda else installed.vendor
    archs = f", for {' '.join(installed.archs)}" if installed.archs else ""
    return [f"{installed.version} ({build}){archs}", installed.path]


def _compatibility(found: Diagnosis, gpu: GpuInfo) -> str:
    name = f"GPU {gpu.index} ({gpu.name}, {gpu.arch or 'unknown'}):"
    covered = found.is_covered(gpu)
    if covered is None:
        return f"{name}  unknown"
    if covered:
        return f"{name}  OK"
    archs = " ".join(found.used.archs) if found.used else ""
    return f"{name}  MISSING -- arch {spoken_arch(gpu)} not in [{archs}]"
