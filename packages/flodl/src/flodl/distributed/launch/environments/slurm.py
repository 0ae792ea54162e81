"""Processes that Slurm's ``srun`` started."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flodl.core.errors import ConfigError
from flodl.distributed.launch.environments.base import Launcher, Outside, whole

_FIRST_PORT = 20000
_PORTS = 20000


def from_slurm(environ: Mapping[str, str]) -> Outside | None:
    """Return the place that Slurm gave this process, ``None`` where it is not one of several.

    Raises:
        ConfigError: A variable is missing or cannot be read.
    """
    if not environ.get("SLURM_PROCID") or whole(environ, "SLURM_NTASKS", 1) < 2:
        return None
    world_size, job = whole(environ, "SLURM_NTASKS"), whole(environ, "SLURM_JOB_ID", 0)
    nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or ""
    return Outside(
        launcher=Launcher.SLURM,
        rank=whole(environ, "SLURM_PROCID"),
        world_size=world_size,
        local_rank=whole(environ, "SLURM_LOCALID", 0),
        local_world_size=_local_tasks(environ, world_size),
        controller_host=first_host(nodes),
        # each job of a node needs another port, and all its tasks must come to the same
        port=_FIRST_PORT + job % _PORTS,
        run=f"slurm-{job}-{whole(environ, 'SLURM_STEP_ID', 0)}",
    )


def first_host(nodes: str) -> str:
    """Return the first host of a list such as ``"gpu[03-05,09],login1"``.

    Raises:
        ConfigError: The list is empty or cannot be read.
    """
    found = re.match(r"([^\[,\s]+)(?:\[([0-9]+)[^\]]*\]([^,\s]*))?", nodes)
    if found is None:
        raise ConfigError(
            f"SLURM_JOB_NODELIST={nodes!r}: names no host",
            hint="start the script with srun, which sets it",
        )
    stem, number, rest = found.groups()
    return f"{stem}{number or ''}{rest or ''}"


def _local_tasks(environ: Mapping[str, str], world_size: int) -> int:
    """Return how many tasks run on this node; Slurm writes ``"2(x3),1"`` for four nodes."""
    per_node: list[int] = []
    for part in (environ.get("SLURM_TASKS_PER_NODE") or "").split(","):
        found = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", part.strip())
        if found is None:
            return world_size
        per_node += [int(found[1])] * int(found[2] or 1)
    node = whole(environ, "SLURM_NODEID", 0)
    return per_node[node] if node < len(per_node) else world_size
