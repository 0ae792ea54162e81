"""Spreads a graph over what devices there are: replicas here, or one of several processes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from flodl.core.errors import ConfigError
from flodl.distributed.collective.errors import PayloadMismatchError
from flodl.distributed.ddp import Ddp
from flodl.distributed.launch.hardware import hardware_line
from flodl.distributed.replica.config import DdpConfig
from flodl.distributed.replica.gathering import check_namespace
from flodl.distributed.replica.member import Member
from flodl.distributed.replica.rank import RankStepper
from flodl.distributed.replica.replicas import ReplicaStepper
from flodl.distributed.replica.surroundings import (
    RankPlace,
    device_names,
    rank_place,
    replica_devices,
)
from flodl.graph.base import GraphBase
from flodl.graph.nodes.traces import LoopBody
from flodl_sys.gpu import detect_gpus
from flodl_sys.names import FAKE_DEVICES

if TYPE_CHECKING:
    from flodl.distributed.replica.stepper import SpreadStepper
    from flodl.graph.graph import Graph

_HASH_DIGITS = 64

GraphFactory = Callable[[torch.device], GraphBase]


def distribute(
    graph: Graph, builder: GraphFactory, environ: Mapping[str, str] = os.environ
) -> SpreadStepper | None:
    """Return what runs a graph's loop on all devices; ``None`` where there is one.

    Raises:
        ConfigError: ``builder`` gives no graphs of their own, or a variable cannot be read.
        FormationError: Graphs differ, or a process did not come.
        NamespaceError: A name is that of a tag and of a trace.
    """
    place = rank_place(environ)
    if place is not None:
        _check(graph)
        return as_rank(graph, place)
    devices = replica_devices(environ)
    if len(devices) < 2:
        return None
    _check(graph)
    return _with_replicas(graph, builder, devices)


def auto_distribute(
    graph: Graph, builder: GraphFactory, environ: Mapping[str, str] = os.environ
) -> SpreadStepper | None:
    """Say which devices there are, distribute, and use ElChe where they differ.

    Raises:
        As `distribute`.
    """
    if environ.get("RANK", "0") == "0" and environ.get("SLURM_PROCID", "0") == "0":
        fakes = environ.get(FAKE_DEVICES.name)
        line = f"ddp: replicas on the CPU: {fakes}" if fakes else hardware_line(detect_gpus())
        sys.stderr.write(f"{line}\n")
    stepper = distribute(graph, builder, environ)
    if stepper is not None and stepper.is_heterogeneous:
        stepper.configure_el_che(DdpConfig())
    return stepper


def _with_replicas(
    graph: Graph, builder: GraphFactory, devices: tuple[torch.device, ...]
) -> ReplicaStepper:
    graphs: list[GraphBase] = [graph]
    for device in devices[1:]:
        built = builder(device)
        if not isinstance(built, GraphBase):
            raise ConfigError(
                f"the factory of replicas gave a {type(built).__name__} for {device}: expected a "
                "graph like the one that is distributed"
            )
        graphs.append(built.to(device))
    _check_replicas(graphs)
    graph.to(devices[0])
    ddp = Ddp.wrap(graphs, list(devices))
    members = [
        Member(one, device, is_trained=one is graph)
        for one, device in zip(graphs, devices, strict=True)
    ]
    ddp.close_with(graph)
    return ReplicaStepper(graph, members, ddp, kinds=device_names(devices))


def _check_replicas(graphs: list[GraphBase]) -> None:
    """Refuse replicas that are not alike, or not separate.

    Raises:
        ConfigError: Two share a parameter.
        PayloadMismatchError: They are built differently.
    """
    seen: set[int] = set()
    for rank, one in enumerate(graphs):
        own = {id(parameter) for parameter in one.parameters()}
        if own & seen:
            raise ConfigError(
                f"replica {rank} shares parameters with another: each device needs its own",
                hint="build a new graph in each call of the factory",
            )
        seen |= own
        if one.structural_hash != graphs[0].structural_hash:
            raise _other_graph(rank, graphs[0].short_hash, one.short_hash)


def as_rank(graph: Graph, place: RankPlace) -> RankStepper:
    """Return what runs a graph's loop as one of several ranks, after all have met.

    Raises:
        FormationError: Graphs differ, or a rank did not come.
    """
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)  # as a rank's loop may say just "cuda"
    graph.to(place.device)
    ddp = Ddp.wrap(graph, place.device, place.rank, place.meeting)
    (name,) = device_names((place.device,))
    own = bytes.fromhex(graph.structural_hash) + hashlib.sha256(name.encode()).digest()
    table = [bytes(map(int, theirs)).hex() for theirs in ddp.gather([list(own)])]
    for rank, theirs in enumerate(table):
        if theirs[:_HASH_DIGITS] != table[0][:_HASH_DIGITS]:
            raise _other_graph(rank, table[0][:8], theirs[:8])
    member = Member(graph, place.device, is_trained=True)
    ddp.close_with(graph)
    return RankStepper(graph, [member], ddp, kinds=[theirs[_HASH_DIGITS:] for theirs in table])


def _other_graph(rank: int, first: str, own: str) -> PayloadMismatchError:
    return PayloadMismatchError(
        f"the graph of rank {rank} has the hash {own}, that of rank 0 has {first}: they are built "
        "differently",
        hint="all ranks must build the same model",
    )


def _check(graph: GraphBase) -> None:
    """Refuse parameters without a shape, and published names that are tags of other steps.

    Raises:
        ConfigError: There is such a parameter.
        NamespaceError: There is such a name.
    """
    named = dict(graph.named_parameters())
    lazy = [name for name, is_it in zip(named, map(is_lazy, named.values()), strict=True) if is_it]
    if lazy:
        raise ConfigError(
            f"parameters without a shape yet: {', '.join(lazy)}",
            hint="call the graph once before it is distributed",
        )
    for one in graph.modules():
        if not isinstance(one, GraphBase):
            continue
        for node in one.flodl_plan.nodes:
            body = one.get_submodule(node.path("body")) if node.op == "loop" else None
            if isinstance(body, LoopBody):
                check_namespace(one, node.id, dict.fromkeys(body.emits))
