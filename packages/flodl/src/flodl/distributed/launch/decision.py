"""Which part this process plays in a run, decided once and before anything is started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from flodl.core.errors import ConfigError
from flodl.distributed.cluster.role import Role, role_of
from flodl.distributed.launch.environments.base import Outside
from flodl.distributed.launch.environments.slurm import from_slurm
from flodl.distributed.launch.environments.torchrun import from_torchrun

LaunchChoice: TypeAlias = Literal["auto", "script", "spawn", "thread"]
LAUNCH_CHOICES: tuple[LaunchChoice, ...] = ("auto", "script", "spawn", "thread")
_PYTEST = "PYTEST_CURRENT_TEST"


class Part(StrEnum):
    """What a process does when ``run()`` is called in it."""

    SOLO = "solo"
    """Train here, on one device, without a controller."""
    LAUNCH_HOST = "launch_host"
    """Start controller and ranks on this host."""
    LAUNCH_CLUSTER = "launch_cluster"
    """Start them on the hosts of a cluster."""
    CONTROLLER = "controller"
    RANK = "rank"
    OUTSIDE_RANK = "outside_rank"
    """Be a rank that torchrun or Slurm has started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The part of this process, and why it is that one."""

    part: Part
    reason: str
    outside: Outside | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the call asked for, as far as it decides who does what.

    Raises:
        ConfigError: A value is out of range; the message lists all of them.
    """

    launch: LaunchChoice = "auto"
    devices: int | None = None
    """Number of devices that were named; ``None`` where none were."""
    ranks: int | None = None
    has_cluster: bool = False

    def __post_init__(self) -> None:
        problems = []
        if self.launch not in LAUNCH_CHOICES:
            problems.append(
                f"launch={self.launch!r}: must be one of {', '.join(map(repr, LAUNCH_CHOICES))}"
            )
        if self.ranks is not None and self.ranks < 1:
            problems.append(f"ranks={self.ranks}: must be at least 1")
        if self.devices == 0:
            problems.append("devices=[]: must name at least one device")
        if self.ranks is not None and self.devices is not None and self.ranks != self.devices:
            problems.append(
                f"ranks={self.ranks} and {self.devices} devices: there is one rank a device"
            )
        if self.launch == "thread" and self.has_cluster:
            problems.append("launch='thread' and a cluster: threads do not leave their process")
        if problems:
            raise ConfigError("; ".join(problems))


def decide(
    wish: Wish,
    *,
    gpu_count: Callable[[], int],
    environ: Mapping[str, str] = os.environ,
) -> Decision:
    """Return the part of this process; the first rule that fits decides.

    Args:
        wish: What was asked for.
        gpu_count: Returns the number of GPUs that this process may use; asked only if it matters.
        environ: Environment of the process.

    Raises:
        ConfigError: What another launcher has set cannot be read.
        LaunchError: The role that was assigned is none.
    """
    role = role_of(environ)
    if role is Role.CONTROLLER:
        return Decision(part=Part.CONTROLLER, reason="a launcher started it as the controller")
    if role is Role.RANK:
        return Decision(part=Part.RANK, reason="a host daemon started it as a rank")
    outside = from_torchrun(environ) or from_slurm(environ)
    if outside is not None:
        return Decision(
            part=Part.OUTSIDE_RANK,
            reason=f"{outside.launcher.value} started it as rank {outside.rank}",
            outside=outside,
        )
    if wish.has_cluster:
        return Decision(part=Part.LAUNCH_CLUSTER, reason="a cluster is given")
    return _on_this_host(wish, gpu_count, environ)


def _on_this_host(wish: Wish, gpu_count: Callable[[], int], environ: Mapping[str, str]) -> Decision:
    asked = wish.ranks if wish.devices is None else wish.devices
    if wish.launch != "auto":
        return Decision(part=Part.LAUNCH_HOST, reason=f"launch={wish.launch!r}")
    if asked == 1:
        return Decision(part=Part.SOLO, reason="one device was asked for")
    count = gpu_count() if asked is None else asked
    if count < 2:
        return Decision(part=Part.SOLO, reason="there is one device")
    if environ.get(_PYTEST):
        return Decision(
            part=Part.SOLO,
            reason="pytest runs, and running its command again would run the tests again; "
            "launch='thread' or 'spawn' starts ranks from a test",
        )
    reason = f"{count} devices" if asked is None else f"{count} ranks were asked for"
    return Decision(part=Part.LAUNCH_HOST, reason=reason)
