"""Processes that ``torchrun`` started."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flodl.core.log import warn_once
from flodl.distributed.launch.environments.base import Launcher, Outside, whole

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
_logger = logging.getLogger(__name__)


def from_torchrun(environ: Mapping[str, str]) -> Outside | None:
    """Return the place that torchrun gave this process, ``None`` where it did not start it.

    Raises:
        ConfigError: A variable holds no number.
    """
    if not all(environ.get(name) for name in _NEEDED):
        return None
    if whole(environ, "TORCHELASTIC_MAX_RESTARTS", 0) > 0:
        warn_once(
            _logger,
            "torchrun restarts all ranks when one dies, which flodl does better by itself; "
            "give it --max-restarts=0",
        )
    world_size = whole(environ, "WORLD_SIZE")
    return Outside(
        launcher=Launcher.TORCHRUN,
        rank=whole(environ, "RANK"),
        world_size=world_size,
        local_rank=whole(environ, "LOCAL_RANK", 0),
        local_world_size=whole(environ, "LOCAL_WORLD_SIZE", world_size),
        controller_host=environ["MASTER_ADDR"],
        port=whole(environ, "MASTER_PORT", 29500),
        run=environ.get("TORCHELASTIC_RUN_ID", "none"),
    )
