"""The machine that the suite runs on: versions, the card, its driver, its clocks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

import torch

from ddp_bench.environment import describe_environment
from ddp_bench.errors import UsageError

_QUERY = (
    "driver_version",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "power.draw",
    "memory.total",
)
_TIMEOUT_S = 20


def describe(device: str) -> dict[str, Any]:
    """Return what is known about the machine; starts CUDA in a process of its own only."""
    facts = describe_environment(torch.device("cpu"))
    facts |= {"cores": os.cpu_count(), "lightning": _version("pytorch-lightning")}
    if device == "cuda":
        card = gpu_facts()
        facts |= {"cuda": torch.version.cuda, "driver": card.get("driver_version"), "card": card}
        facts["gpus"] = [card["name"]] if "name" in card else None
    return facts


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def gpu_facts() -> dict[str, str]:
    """Return what nvidia-smi says of the first GPU; empty where it says nothing."""
    names = ("name", *_QUERY)
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {}


@contextlib.contextmanager
def locked_clocks(mhz: int | None) -> Iterator[str]:
    """Lock the GPU's clock within the block, where one is given; yield what holds.

    The lock is taken off when the block ends, also by an exception or by a signal that asks the
    process to end. Without permission the block runs unlocked, and the text says so.

    Raises:
        UsageError: The Windows host of a WSL machine owns the clocks.
    """
    if mhz is None:
        yield "unlocked"
        return
    if "microsoft" in os.uname().release.lower():
        raise UsageError(
            "--lock-clocks: under WSL the clocks belong to the Windows host",
            hint=f"run nvidia-smi -lgc {mhz},{mhz} there, and nvidia-smi -rgc afterwards",
        )
    if not _clock_command("-lgc", f"{mhz},{mhz}"):
        yield f"unlocked: not permitted to lock {mhz} MHz"
        return
    with _released_on_signal(lambda: _clock_command("-rgc")):
        yield f"locked to {mhz} MHz"


@contextlib.contextmanager
def _released_on_signal(release: Callable[[], object]) -> Iterator[None]:
    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        release()
        signal.signal(signal.SIGTERM, before)


def _clock_command(*arguments: str) -> bool:
    try:
        done = subprocess.run(
            ["nvidia-smi", "-i", "0", *arguments],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
