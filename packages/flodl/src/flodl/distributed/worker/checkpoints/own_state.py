"""All that is one rank's own, so that another process goes on as that rank, to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from flodl.checkpoint import checkpoint_info, load_state_file, save_checkpoint
from flodl.checkpoint.optim import state_document
from flodl.checkpoint.optim.values import decode, encode
from flodl.core.errors import CheckpointFormatError
from flodl.distributed.averaging.state import State
from flodl.distributed.lifecycle.work import WorkInHand
from flodl.distributed.worker.checkpoints.parts import OPTIMIZER, Share, rank_part
from flodl.engine.bundle import Bundle, load_model, read_tensors
from flodl.engine.copies import PartCopies
from flodl.engine.resume import has_state, random_states, restore_random_states

if TYPE_CHECKING:
    from flodl.distributed.averaging.plane import Plane
    from flodl.distributed.worker.worker import Worker

KIND = "rank"


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnParts:
    """What of a rank is its own.

    Attributes:
        worker: Its counters, its model, optimizer and step.
        plane: Its side of the averages.
    """

    worker: Worker
    plane: Plane

    def add_to(self, copies: PartCopies, share: Share, work: dict[str, Any]) -> None:
        """Register the rank's own parts; the model holds the rank's own values.

        Args:
            copies: Where to.
            share: Whose part it is.
            work: The leases in hand, as the rank's machine describes them.
        """
        worker, step = self.worker, self.worker.train_step
        tensors, random = random_states(worker.device)
        kept = {f"random/{name}": tensor for name, tensor in tensors.items()}
        kept |= _prefixed("model/", step.model.state_dict(keep_vars=True))
        if step.has_open_window:
            gradients = {n: p.grad for n, p in step.model.named_parameters() if p.grad is not None}
            kept |= _prefixed("gradient/", gradients)
        consensus = self.plane.consensus.state()
        kept |= _prefixed("consensus/", consensus.tensors)
        residual = self.plane.residual()
        if residual is not None:
            kept["residual"] = residual
        bad = step.bad_batches
        meta = {
            "random": random,
            "step": step.state_dict(),
            "bad_batches": 0 if bad is None else int(bad.item()),
            "worker": worker.to_state(),
            "work": work,
            "consensus": consensus.meta,
            "last_completed": self.plane.last_completed,
        }
        moments = self.plane.moments
        if moments is not None:
            meta["moments"] = moments.state()
        scheduler = step.scheduler
        if scheduler is not None and has_state(scheduler):
            meta["schedule"] = encode(scheduler.state_dict(), kept, "schedule")  # type: ignore[union-attr] # has_state has told
        copies.add(
            rank_part(share.part),
            kept,
            lambda file, own: save_checkpoint(file, own, hash="", kind=KIND, meta=meta),
        )
        if not share.is_lead:  # the lead's optimizer is the checkpoint's
            copies.add_state(rank_part(share.part, OPTIMIZER), state_document(step.optimizer))

    def load(self, bundle: Bundle, part: int) -> WorkInHand:
        """Go on as one rank of a checkpoint; returns the leases that it had in hand.

        Raises:
            CheckpointError: A part is missing, or does not fit.
            StateMismatchError: The optimizer is another one.
        """
        file = bundle.part(rank_part(part))
        optimizer = bundle.part(rank_part(part, OPTIMIZER)) or bundle.part(OPTIMIZER)
        if file is None or optimizer is None:
            raise CheckpointFormatError(
                f"checkpoint {bundle.stem}: it has no state of rank {part} of its own"
            )
        worker, step, plane = self.worker, self.worker.train_step, self.plane
        meta, kept = checkpoint_info(file).meta, State(tensors=read_tensors(file))
        load_model(bundle, step.model)  # checks that it is the model
        load_state_file(step.optimizer, optimizer)
        plane.consensus.load(State(tensors=kept.part("consensus/").tensors, meta=meta["consensus"]))
        plane.last_completed = int(meta["last_completed"])
        if "residual" in kept.tensors:
            plane.load_residual(kept.tensors["residual"])
        moments = plane.moments
        if moments is not None and "moments" in meta:
            moments.load(meta["moments"])
        self._write_model(kept)
        scheduler = step.scheduler
        if scheduler is not None and "schedule" in meta:
            scheduler.load_state_dict(decode(meta["schedule"], kept.tensors))  # type: ignore[union-attr] # as in add_to
        step.load_state_dict(meta["step"])
        if step.bad_batches is not None:
            step.bad_batches.fill_(meta["bad_batches"])
        worker.take_state(meta["worker"])
        work = WorkInHand.from_state(meta["work"])
        # last: nothing may draw after it
        restore_random_states(worker.device, kept.part("random/").tensors, meta["random"])
        return work

    @torch.no_grad()
    def _write_model(self, kept: State) -> None:
        model = self.worker.train_step.model
        entries = model.state_dict(keep_vars=True)
        for name, value in kept.part("model/").tensors.items():
            entries[name].copy_(value)
        parameters = dict(model.named_parameters())
        for name, value in kept.part("gradient/").tensors.items():
            parameters[name].grad = value.to(parameters[name].device)


def _prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}
