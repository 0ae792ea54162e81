"""One call that trains: which part this process plays in it, and what it returns there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

import torch

from flodl.core.errors import LaunchError
from flodl.distributed.cluster.role import place_of
from flodl.distributed.launch.decision import Part, Wish, decide
from flodl.distributed.launch.environments.base import Outside
from flodl.distributed.launch.method import program
from flodl.distributed.launch.ordinal import next_ordinal
from flodl.sys import detect_gpus
from flodl.trainer.finished import FinishedRun
from flodl.trainer.handle import TrainHandle
from flodl.trainer.ranks.spec import RunSpec

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts(Generic[T]):
    """What a call does and returns in each part that a process may play in it."""

    alone: Callable[[], T]
    """On one device, in this process."""
    directing: Callable[[TrainHandle], T]
    """In the launcher of several ranks, once they are started; and in a process of a later run, for
    which this one is over."""
    as_rank: Callable[[], T]
    """In a process that was started as a rank."""
    outside: Callable[[int, Outside], T]
    """In one that torchrun or Slurm has started; it gets the number of the call."""


def run_anywhere(spec: RunSpec, alone: Callable[[], TrainHandle]) -> TrainHandle:
    """Train alone, start ranks, or be what this process was started as.

    Args:
        spec: What to train.
        alone: Trains in this process, on one device.

    Raises:
        SystemExit: This process was started as a rank or a controller, and its part is over.
        LaunchError: A process cannot be started.
    """
    return take_part(
        spec,
        Parts(
            alone=alone,
            directing=lambda handle: handle,
            as_rank=lambda: _train_as_rank(spec),
            outside=lambda ordinal, outside: _train_outside(spec, ordinal, outside),
        ),
    )


def take_part(spec: RunSpec, parts: Parts[T]) -> T:
    """Play the part in a run that falls to this process.

    Raises:
        SystemExit: This process was started as a controller, and its part is over.
        LaunchError: A process cannot be started.
    """
    config = spec.config
    ordinal = next_ordinal()
    wish = Wish(
        launch=config.launch,
        devices=None if config.devices is None else len(config.devices),
        ranks=config.ranks,
    )
    decision = decide(wish, gpu_count=lambda: len(detect_gpus()))
    match decision.part:
        case Part.SOLO:
            return parts.alone()
        case Part.LAUNCH_HOST:
            return parts.directing(_launched(spec, ordinal))
        case Part.CONTROLLER | Part.RANK:
            return _as_started(spec, ordinal, decision.part, parts)
        case Part.OUTSIDE_RANK:
            assert decision.outside is not None
            return parts.outside(ordinal, decision.outside)
        case Part.LAUNCH_CLUSTER:
            raise LaunchError(f"{decision.reason}: this version does not start other hosts")


def _launched(spec: RunSpec, ordinal: int) -> TrainHandle:
    launch_choice = spec.config.launch
    if spec.train_step is None and program(launch_choice) is None:
        raise LaunchError(
            f"launch={launch_choice!r}: a loop of your own stands in the program, and here is none "
            "that ranks could run",
            hint="put it into a file and run that; or give the builder a train step and use run()",
        )
    if launch_choice == "thread":
        from flodl.trainer.ranks.launcher import launch_threads

        return launch_threads(spec, ordinal)
    from flodl.trainer.ranks.launcher import launch

    return launch(spec, ordinal)


def _as_started(spec: RunSpec, ordinal: int, part: Part, parts: Parts[T]) -> T:
    """Take the role that this process was started with, or pass over an earlier run."""
    from flodl.distributed.launch.child import earlier_results, leave

    mine = place_of().ordinal
    if ordinal < mine:
        state, metrics = earlier_results().get(ordinal)
        return parts.directing(FinishedRun(metrics, state, torch.device("cpu"), None))
    if part is Part.RANK:
        return parts.as_rank()
    from flodl.trainer.ranks.controller import be_controller

    be_controller(spec)
    return leave(0)


def _train_as_rank(spec: RunSpec) -> NoReturn:
    from flodl.distributed.launch.child import leave
    from flodl.trainer.ranks.rank import be_rank

    leave(be_rank(spec))


def _train_outside(spec: RunSpec, ordinal: int, outside: Outside) -> TrainHandle:
    from flodl.trainer.ranks.outside import run_outside

    return run_outside(spec, ordinal, outside)
