"""Ranks that torchrun or Slurm has started: they find the controller, which the first one brings.

The launcher's own store tells all of them where it is. Each process is a host of its own to the
controller, with itself as the one member.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch.distributed import DistNetworkError, DistStoreError
from torch.distributed.distributed_c10d import Store

from flodl.core.errors import LaunchError
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.collective.rendezvous import open_tcp_store
from flodl.distributed.hostd.machine import machine_of
from flodl.distributed.hostd.options import HostOptions
from flodl.distributed.launch.environments.base import Outside
from flodl.distributed.launch.local import LocalPlan, LocalRun
from flodl.distributed.protocol.values import Device
from flodl.distributed.serving.desk import Note
from flodl.distributed.worker.link import RankLink
from flodl.distributed.worker.own_host import OwnHost
from flodl.distributed.worker.progress import ProgressPage, new_page
from flodl.distributed.worker.uplink import Endpoint

_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True, kw_only=True, slots=True)
class OutsideRun:
    """This process's side of a run that another launcher has started."""

    link: RankLink
    controller: LocalRun | None
    """The controller's process, in the first rank."""

    def close(self) -> None:
        """Part from the controller."""
        self.link.close()


def join_outside(
    outside: Outside,
    plan: LocalPlan,
    *,
    device: Device,
    torch_device: str,
    receive: Callable[[Note], None],
    environ: Mapping[str, str] = os.environ,
) -> OutsideRun:
    """Connect this process to the run's controller, and start that in the first process.

    Args:
        outside: The place that the launcher gave this process.
        plan: What the controller needs, without devices.
        device: What this rank computes on.
        torch_device: The same, as torch names it in this process.
        receive: Called with the controller's notes, in the first process.
        environ: Environment of the process.

    Raises:
        LaunchError: The controller cannot be found in time.
    """
    prefix = f"flodl/{environ.get(_RESTARTS, '0')}/{plan.ordinal}"
    store = _store(outside, plan, environ)
    controller = _start(outside, plan, receive) if outside.is_first else None
    try:
        if controller is not None:
            store.set(f"{prefix}/controller", _told(outside, controller))
        found = json.loads(store.get(f"{prefix}/controller"))
        _meet(store, prefix, outside)
    except (RuntimeError, ValueError) as error:
        if controller is not None:
            controller.abort()
        raise LaunchError(
            f"rank {outside.rank}: the controller was not found over {outside.controller_host}:"
            f"{outside.port}: {error}",
            hint="all ranks must run the same program, and the first one's host be reachable",
        ) from error
    link = _link(outside, plan, found, device, torch_device)
    return OutsideRun(link=link, controller=controller)


def _start(outside: Outside, plan: LocalPlan, receive: Callable[[Note], None]) -> LocalRun:
    is_one_host = outside.local_world_size == outside.world_size
    listen = "127.0.0.1" if is_one_host else "0.0.0.0"  # noqa: S104 (ranks of other hosts dial in)
    own = dataclasses.replace(plan, devices=(), listen_host=listen, is_rank=True)
    run = LocalRun(own, receive)
    run.start()
    return run


def _told(outside: Outside, run: LocalRun) -> str:
    is_one_host = outside.local_world_size == outside.world_size
    host = "127.0.0.1" if is_one_host else outside.controller_host
    return json.dumps(
        {
            "address": f"{host}:{run.port}",
            "token": run.endpoint.token,
            "run": run.run,
            "nonce": run.nonce,
            "run_dir": str(run.folder.path),
        }
    )


def _store(outside: Outside, plan: LocalPlan, environ: Mapping[str, str]) -> Store:
    is_served = environ.get(_AGENT_STORE, "").casefold() == "true"
    timeout_s = plan.timeouts.boot
    try:
        return open_tcp_store(
            outside.controller_host,
            outside.port,
            outside.world_size,
            is_server=outside.is_first and not is_served,
            timeout_s=timeout_s,
        )
    except (DistNetworkError, DistStoreError) as error:
        raise LaunchError(
            f"rank {outside.rank}: no store at {outside.controller_host}:{outside.port}: {error}",
            hint=f"{outside.launcher.value} gave that address; is it reachable from this host?",
        ) from error


def _meet(store: Store, prefix: str, outside: Outside) -> None:
    """Keep the first rank's store open until all have read from it."""
    store.set(f"{prefix}/has/{outside.rank}", "1")
    if outside.is_first:
        store.wait([f"{prefix}/has/{rank}" for rank in range(outside.world_size)])


def _link(
    outside: Outside, plan: LocalPlan, found: dict[str, str], device: Device, torch_device: str
) -> RankLink:
    host = f"{socket.gethostname()}.{outside.local_rank}"
    options = HostOptions(
        run=found["run"],
        nonce=found["nonce"],
        address=found["address"],
        token=found["token"],
        host=host,
        devices=(device,),
        run_dir=found["run_dir"],
        cwd=str(Path.cwd()),
        ordinal=plan.ordinal,
        timeouts=plan.timeouts,
        respawn=0,
        vendor="cpu" if torch_device == "cpu" else plan.vendor,
    )
    place = RunPlace(
        run=found["run"],
        nonce=found["nonce"],
        run_dir=found["run_dir"],
        ordinal=plan.ordinal,
        host=host,
        uid=options.uid(0),
        number=outside.rank,
        device=torch_device,
        device_index=-1 if torch_device == "cpu" else device.index,
        threads=plan.threads,
    )
    page = ProgressPage(new_page())
    endpoint = Endpoint(address=found["address"], token=found["token"])
    carrier = OwnHost(endpoint, host, machine_of(options), page, timeouts=plan.timeouts)
    return RankLink(place, carrier=carrier, page=page)
