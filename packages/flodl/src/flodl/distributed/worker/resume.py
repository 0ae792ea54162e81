"""Brings a rank to the state of a checkpoint, before it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.checkpoint import checkpoint_info, load_state_file
from flodl.core.errors import CheckpointFormatError, ResumeMismatchError
from flodl.distributed.averaging.state import State
from flodl.distributed.worker.checkpoints.parts import OPTIMIZER, OUTER, SCHEDULE
from flodl.engine.bundle import Bundle, load_model, read_tensors
from flodl.engine.resume import has_state

if TYPE_CHECKING:
    from flodl.distributed.averaging.consensus import Consensus
    from flodl.engine.step import TrainStep


def resume_rank(
    bundle: Bundle, step: TrainStep, consensus: Consensus, dataset_signature: str
) -> None:
    """Load model, optimizer, schedule and outer optimizer; every rank loads the same.

    Args:
        bundle: The checkpoint.
        step: Of the rank, with its model, optimizer and schedule; tensors are written in place.
        consensus: What the ranks share; the checkpoint is its first value.
        dataset_signature: Tells the data of this run.

    Raises:
        CheckpointError: It does not fit the model.
        ResumeMismatchError: It was made with other data.
        StateMismatchError: The optimizer is another one.
    """
    saved = bundle.meta.get("signatures", {}).get("dataset")
    if saved is not None and saved != dataset_signature:
        raise ResumeMismatchError(
            f"checkpoint {bundle.stem}: it was made with other data, or with another order of them",
            hint="resume with the data set, the seed and the version of torch that it was made "
            "with",
        )
    optim = bundle.part(OPTIMIZER)
    if optim is None:
        raise CheckpointFormatError(f"checkpoint {bundle.stem}: it has no optimizer")
    load_model(bundle, step.model)
    load_state_file(step.optimizer, optim)
    schedule, scheduler = bundle.part(SCHEDULE), step.scheduler
    if schedule is not None and scheduler is not None and has_state(scheduler):
        load_state_file(scheduler, schedule)  # type: ignore[arg-type] # those with state are of the protocol
    step.adopt_lr_scale(float(bundle.meta.get("lr_scale", 1.0)))
    consensus.adopt_model()
    outer = bundle.part(OUTER)
    if outer is not None:
        consensus.load_outer(State(tensors=read_tensors(outer), meta=checkpoint_info(outer).meta))
