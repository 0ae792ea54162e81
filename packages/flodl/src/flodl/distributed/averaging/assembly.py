"""Chooses and forms the exchange that fits a generation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._C._distributed_c10d import Store

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.exchange import Exchange
from flodl.distributed.averaging.gpu import GpuExchange
from flodl.distributed.averaging.host import HostExchange, HostShape, map_host, own_segment
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.shards import ShardExchange
from flodl.distributed.averaging.solo import SoloExchange
from flodl.distributed.collective.formation import Formation
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.group import Group, GroupPlan, form_group
from flodl.distributed.collective.patience import Interrupt, call_patiently
from flodl.distributed.collective.segments import SHARED_MEMORY

__all__ = ["Assembly", "make_exchange"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembly:
    """What an exchange is made for."""

    formation: Formation
    config: PlaneConfig
    numel: int
    """Of the flat payload."""
    side: int
    """Numbers that a rank sends aside."""
    device: torch.device


def make_exchange(
    plan: Assembly, store: Store, graveyard: Graveyard, *, interrupted: Interrupt
) -> Exchange:
    """Form the exchange with all ranks of the generation.

    Raises:
        Interrupted: ``interrupted()`` became true first.
        FormationError: A rank did not come.
        CollectiveError: Shared memory could not be mapped.
        ConfigError: GPUs in two levels: not known how.
    """
    formation, config = plan.formation, plan.config
    if formation.world_size == 1:
        return SoloExchange()
    if config.fabric == "nccl":
        if formation.topology != "flat":
            raise ConfigError(f"topology={formation.topology!r} with fabric='nccl': must be 'flat'")
        group = _group(plan, store, graveyard, range(formation.world_size), interrupted)
        return GpuExchange(group, plan.numel, plan.device)
    if formation.topology == "flat":
        group = _group(plan, store, graveyard, range(formation.world_size), interrupted)
        return ShardExchange(group, plan.numel, error_feedback=config.error_feedback)
    return _two_level(plan, store, graveyard, interrupted)


def _two_level(
    plan: Assembly, store: Store, graveyard: Graveyard, interrupted: Interrupt
) -> Exchange:
    formation, config = plan.formation, plan.config
    shape = HostShape(numel=plan.numel, side=plan.side, rows=formation.world_size)
    folders = [SHARED_MEMORY, *([config.run_dir] if config.run_dir else [])]
    own = own_segment(formation, shape, prefix=config.shm_prefix, folders=folders)
    try:
        memory = call_patiently(
            lambda: map_host(formation, shape, own, store),
            what="map-host",
            timeout_s=formation.timeout_s,
            interrupted=interrupted,
        )
    finally:
        own.unlink()
    leaders = None
    if formation.is_leader and len(formation.leaders) > 1:
        leaders = _group(plan, store, graveyard, formation.leaders, interrupted)
    return HostExchange(formation, shape, memory, leaders, error_feedback=config.error_feedback)


def _group(
    plan: Assembly,
    store: Store,
    graveyard: Graveyard,
    ranks: range | tuple[int, ...],
    interrupted: Interrupt,
) -> Group:
    formation = plan.formation
    wanted = GroupPlan(
        prefix=formation.prefix("average"),
        rank=list(ranks).index(formation.rank),
        size=len(ranks),
        fabric=plan.config.fabric,
        address=formation.address,
        timeout_s=formation.timeout_s,
    )
    return form_group(wanted, store, graveyard, interrupted=interrupted)
