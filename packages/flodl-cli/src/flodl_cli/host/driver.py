"""The version of the NVIDIA driver."""

from __future__ import annotations

import shutil

from flodl_cli.errors import LaunchError
from flodl_cli.host.process import ask

_WSL_TOOL = "/usr/lib/wsl/lib/nvidia-smi"
_LIMIT_S = 5.0


def nvidia_driver() -> str | None:
    """Version of the driver, such as ``580.65.06``; ``None`` when it does not answer."""
    tool = shutil.which("nvidia-smi") or _WSL_TOOL
    try:
        answer = ask(
            [tool, "--query-gpu=driver_version", "--format=csv,noheader"], limit_s=_LIMIT_S
        )
    except LaunchError:
        return None
    first = answer.out.strip().splitlines()[:1]
    return first[0].strip() if answer.code == 0 and first else None
