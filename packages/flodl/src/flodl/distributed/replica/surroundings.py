"""Which devices a graph's loop can have: replicas here, or the ranks that somebody started."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch._C._distributed_c10d import PrefixStore, Store

from flodl.core.errors import ConfigError
from flodl.distributed.cluster.role import Role, role_of
from flodl.distributed.collective.group import Fabric, GroupPlan
from flodl.distributed.collective.rendezvous import Rendezvous
from flodl.distributed.ddp import Meeting
from flodl.distributed.launch.environments.base import Launcher, Outside
from flodl.distributed.launch.environments.slurm import from_slurm
from flodl.distributed.launch.environments.torchrun import from_torchrun
from flodl_sys.names import FAKE_DEVICES

PATIENCE_S = 600.0
"""How long a rank waits for another in a step: one may compile, or evaluate alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """This process as one of several, each with a replica."""

    rank: int
    world_size: int
    device: torch.device
    meeting: Meeting


@final
class LoopMeeting:
    """The meeting place of graphs' loops, with keys apart from those of the user's `Ddp.wrap`."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self.rendezvous = rendezvous

    def store(self, rank: int) -> Store:
        """See `Meeting`."""
        return PrefixStore("flodl/loops", self.rendezvous.store(rank))

    def plan(self, rank: int, fabric: Fabric) -> GroupPlan:
        """See `Meeting`."""
        return self.rendezvous.plan(rank, fabric)


def rank_place(environ: Mapping[str, str] = os.environ) -> RankPlace | None:
    """Return the place that torchrun or Slurm gave this process, ``None`` where it is alone.

    Raises:
        ConfigError: A variable of theirs cannot be read.
    """
    outside = from_torchrun(environ) or from_slurm(environ)
    if outside is None or outside.world_size < 2:
        return None
    return RankPlace(
        rank=outside.rank,
        world_size=outside.world_size,
        device=_device_of(outside),
        meeting=_meeting(outside),
    )


def replica_devices(environ: Mapping[str, str] = os.environ) -> tuple[torch.device, ...]:
    """Return the devices of replicas in this process; one or none means that there is no need.

    Raises:
        ConfigError: ``FLODL_FAKE_DEVICES`` is no number.
    """
    if role_of(environ) is not Role.LAUNCHER:
        return ()  # the run that started this process has given it its one device
    fakes = _fake_count(environ)
    if fakes is not None:
        return (torch.device("cpu"),) * fakes
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(torch.device("cuda", index) for index in range(count))


def device_names(devices: tuple[torch.device, ...]) -> list[str]:
    """Return what the devices are called; CPU replicas are all alike."""
    return [
        torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU" for device in devices
    ]


def _fake_count(environ: Mapping[str, str]) -> int | None:
    text = environ.get(FAKE_DEVICES.name) or ""
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ConfigError(
            f"{FAKE_DEVICES.name}={text!r}: must be a number of replicas, 1 or more",
            hint="unset it to use the GPUs",
        )
    return int(text)


def _device_of(outside: Outside) -> torch.device:
    if os.environ.get(FAKE_DEVICES.name) or not torch.cuda.is_available():
        return torch.device("cpu")
    # A launcher may show each process one GPU only, which is then the first.
    visible = torch.cuda.device_count()
    return torch.device("cuda", outside.local_rank if outside.local_rank < visible else 0)


@functools.cache
def _meeting(outside: Outside) -> LoopMeeting:
    """Return the one meeting of this process: each graph takes the next group of it."""
    if outside.launcher is Launcher.TORCHRUN:
        return LoopMeeting(Rendezvous.from_env(timeout_s=PATIENCE_S))
    # One above the controller's port, which a run of the same script may listen on.
    host, port = outside.controller_host, outside.port + 1
    return LoopMeeting(Rendezvous.tcp(host, port, outside.world_size, timeout_s=PATIENCE_S))
