"""What machine this is: processor, memory, system, and the tools that projects need."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.errors import LaunchError
from flodl_cli.host.process import ask

_GIB = 1 << 30
_LIMIT_S = 5.0
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """The machine; tools are ``None`` when they are not there or do not answer."""

    cpu: str
    threads: int
    ram_gb: float | None
    os: str
    wsl: bool
    docker: str | None
    python: str
    uv: str | None


def this_system(root: Path = Path("/")) -> System:
    """The machine that fdl runs on; ``root`` stands for ``/`` where ``proc`` is read."""
    return System(
        cpu=_cpu(root),
        threads=os.cpu_count() or 1,
        ram_gb=_ram_gb(root),
        os=_os(root),
        wsl=is_wsl(root),
        docker=tool_version("docker"),
        python=platform.python_version(),
        uv=tool_version("uv"),
    )


def is_wsl(root: Path = Path("/")) -> bool:
    """Whether this Linux runs inside Windows."""
    return "microsoft" in _read(root / "proc/version").lower()


def in_container() -> bool:
    """Whether fdl runs inside a container."""
    return any(Path(mark).exists() for mark in _CONTAINER_MARKS)


def tool_version(name: str) -> str | None:
    """The first number that ``name --version`` tells, such as ``29.0.1``."""
    if shutil.which(name) is None:
        return None
    try:
        said = ask([name, "--version"], limit_s=_LIMIT_S).out.split()
    except LaunchError:
        return None
    return next((word.rstrip(",") for word in said if word[:1].isdigit()), None)


def _cpu(root: Path) -> str:
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _ram_gb(root: Path) -> float | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) * 1024 / _GIB, 1)
    return None


def _os(root: Path) -> str:
    for line in _read(root / "etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return f"{platform.system()} {platform.release()}" if sys.platform != "linux" else "Linux"


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
