"""Whether this process is the one of its run that people watch."""

from __future__ import annotations

import os
from collections.abc import Mapping

from flodl_sys import names


def is_primary(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether monitors of this process speak and serve.

    Of a run over several processes the launcher does; where ranks were started by torchrun or
    Slurm, the first of them.

    Args:
        environment: Variables to decide by; ``None`` for those of this process.
    """
    env = os.environ if environment is None else environment
    role = env.get(names.INTERNAL_ROLE.name, "launcher")
    if role != "launcher":
        return False
    if "MASTER_ADDR" in env and "WORLD_SIZE" in env:
        return env.get("RANK", "0") == "0"
    if env.get("SLURM_NTASKS", "1") != "1":
        return env.get("SLURM_PROCID", "0") == "0"
    return True
