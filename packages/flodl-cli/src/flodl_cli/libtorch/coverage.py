"""Which GPUs a libtorch has machine code for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_TOKEN = re.compile(r"(\d{1,2})\.(\d)[af]?(\+PTX)?")


def covers(token: str, gpu_arch: str) -> bool:
    """Whether code for ``token`` runs on a GPU of ``gpu_arch`` (``sm_86`` or ``gfx942``).

    Machine code runs on the same major and a higher minor number, PTX on everything newer, and
    a gfx target only on itself.
    """
    if gpu_arch.startswith("gfx"):
        return token == gpu_arch
    built = parse_arch(token)
    if built is None:
        return False
    major, minor = _numbers(gpu_arch)
    return (major == built[0] and minor >= built[1]) or (
        token.endswith("+PTX") and (major, minor) >= built
    )


def uncovered(archs: Sequence[str], gpu_archs: Iterable[str]) -> list[str]:
    """Those of ``gpu_archs`` that none of the tokens covers."""
    return [gpu for gpu in gpu_archs if not any(covers(token, gpu) for token in archs)]


def parse_arch(token: str) -> tuple[int, int] | None:
    """``"8.6+PTX"`` as ``(8, 6)``; ``None`` when it is no CUDA architecture."""
    match = _TOKEN.fullmatch(token)
    return (int(match[1]), int(match[2])) if match else None


def cuda_token(gpu_arch: str) -> str:
    """``sm_120`` as the token ``12.0``."""
    return "{}.{}".format(*_numbers(gpu_arch))


def _numbers(gpu_arch: str) -> tuple[int, int]:
    digits = gpu_arch.removeprefix("sm_")
    return int(digits[:-1]), int(digits[-1])
