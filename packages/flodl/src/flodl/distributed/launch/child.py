"""How a process that flodl has started takes up its role."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.distributed.cluster.role import Role, place_of, role_of
from flodl.distributed.hostd.birth import leave
from flodl.distributed.launch.cuda_guard import recorder
from flodl.distributed.launch.results import ResultShelf
from flodl.distributed.worker.link import RankLink

if TYPE_CHECKING:
    from flodl.distributed.serving.process import ControllerProcess

__all__ = [
    "controller_process",
    "earlier_results",
    "exit_if_worker_role",
    "leave",
    "rank_link",
]


def controller_process() -> ControllerProcess:
    """Return this process as the controller it was started as; no GPU can be touched from now on.

    Raises:
        LaunchError: It was not started as one.
    """
    from flodl.distributed.serving.process import ControllerProcess  # a web server: not for ranks

    process = ControllerProcess()
    recorder.refuse("controller")
    return process


def rank_link(*, store_timeout_s: float = 60.0) -> RankLink:
    """Return the connection of this rank to its controller.

    Raises:
        LaunchError: This process was not started as a rank.
    """
    return RankLink(place_of(), store_timeout_s=store_timeout_s)


def earlier_results() -> ResultShelf:
    """Return the results that this process needs for calls before its own."""
    folder = place_of().results
    return ResultShelf(Path(folder) if folder else None)


def exit_if_worker_role() -> None:
    """Leave a program early that only directs others; nothing happens in launcher and ranks.

    A host daemon runs no user code, so the one role that can get here is the controller of a run
    whose objects were pickled: it takes them up at once, and the program goes no further. A
    controller that runs the program needs it up to ``run()``, and goes on.
    """
    if role_of() is not Role.CONTROLLER or place_of().payload is None:
        return
    from flodl.distributed.hostd.birth import enter_payload

    enter_payload()
    sys.exit(0)
