"""The parts of a checkpoint that one rank writes: copied while training waits, written later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flodl.checkpoint import save_checkpoint
from flodl.checkpoint.optim import state_document
from flodl.distributed.averaging.consensus import Consensus
from flodl.distributed.worker.checkpoints.balance import balanced
from flodl.engine.copies import PartCopies, model_part
from flodl.engine.resume import has_state
from flodl.engine.step import TrainStep

MODEL, OPTIMIZER, OUTER, SCHEDULE = ".fdl", ".optim", ".outer.fdl", ".schedule.optim"


def rank_part(part: int, suffix: str = ".fdl") -> str:
    """Return the suffix of a part that is one rank's own."""
    return f".rank{part}{suffix}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What of a checkpoint a rank writes.

    Attributes:
        part: Its number among the ranks that write.
        parts: How many there are.
        lead: Number of the one that writes what is written once.
        is_sharded: Whether the model is spread over all of them.
    """

    part: int = 0
    parts: int = 1
    lead: int = 0
    is_sharded: bool = False

    @property
    def is_lead(self) -> bool:
        """Whether this rank writes what is written once."""
        return self.part == self.lead

    @property
    def model_part(self) -> str:
        """Suffix of the part that this rank writes of a sharded model."""
        return MODEL if self.is_lead else rank_part(self.part)

    @property
    def shards(self) -> list[str]:
        """Suffixes of all parts that the model is in, the lead's first."""
        others = [rank_part(part) for part in range(self.parts) if part != self.lead]
        return [MODEL, *others] if self.is_sharded else [MODEL]


def add_shared(
    copies: PartCopies,
    step: TrainStep,
    consensus: Consensus,
    share: Share,
    meta: Mapping[str, Any],
) -> None:
    """Register what is written once, or this rank's shard of it; the model holds the consensus."""
    model, names = step.model, None
    if share.is_sharded:
        shards = balanced(
            model.state_dict(keep_vars=True),
            share.parts,
            lead=share.lead,
            held_bytes=_expected_state_bytes(step.optimizer),
            own=set(consensus.local_parts().tensors),
        )
        names = list(shards[share.part])
    elif not share.is_lead:
        return
    tensors, write = model_part(model, meta if share.is_lead else {}, names)
    copies.add(share.model_part, tensors, write)
    if share.is_lead:
        _add_states(copies, step, consensus)


def _add_states(copies: PartCopies, step: TrainStep, consensus: Consensus) -> None:
    copies.add_state(OPTIMIZER, state_document(step.optimizer))
    outer = consensus.outer_state()
    if outer.tensors or outer.meta:
        copies.add(
            OUTER,
            outer.tensors,
            lambda file, own: save_checkpoint(file, own, hash="", meta=outer.meta, kind="outer"),
        )
    scheduler = step.scheduler
    if scheduler is not None and has_state(scheduler):
        copies.add_state(SCHEDULE, state_document(scheduler))  # type: ignore[arg-type] # those with state are of the protocol


def _expected_state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes that an optimizer's state will have, as all ranks reckon it alike.

    What it has now may differ between them: a rank without a step yet has none.
    """
    total = 0
    for group in optimizer.param_groups:
        copies = 2 if "betas" in group else 1 if group.get("momentum") else 0
        total += copies * sum(parameter.nbytes for parameter in group["params"])
    return total
