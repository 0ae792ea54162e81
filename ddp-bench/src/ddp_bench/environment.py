"""The machine and the versions a result was measured on."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_GIT_TIMEOUT_S = 10
_CPU_INFO = Path("/proc/cpuinfo")


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return versions, hardware and source revision; what cannot be known is ``None``."""
    commit, dirty = _revision()
    return {
        "flodl": _installed_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "driver": None,
        "nccl": None,
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "gpus": [torch.cuda.get_device_name(device)] if device.type == "cuda" else None,
        "commit": commit,
        "dirty": dirty,
        "utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": socket.gethostname(),
    }


def rank_line(device: torch.device) -> str:
    """Return what a training log says of the one rank's device."""
    host = socket.gethostname()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        size = round(properties.total_memory / 2**30)
        return (
            f"gpu r0 [{host}:cuda{device.index}]: {properties.name} "
            f"({size}GB, sm_{properties.major}{properties.minor})"
        )
    name, cores = cpu_name() or "unknown CPU", os.cpu_count() or 1
    return f"cpu r0 [{host}:cpu]: {name} ({cores} cores)"


def cpu_name() -> str | None:
    """Return the processor's name as the system gives it, or ``None``."""
    try:
        text = _CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or None


def _installed_version() -> str | None:
    try:
        return version("flodl")
    except PackageNotFoundError:  # run from its sources
        return None


def _revision() -> tuple[str | None, bool | None]:
    """Return commit and dirtiness of the checkout this file lies in, where it lies in one."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
