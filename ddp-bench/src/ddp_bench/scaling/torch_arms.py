"""What torch offers for several ranks, each in the way that its documentation shows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from ddp_bench.scaling.link import is_slow, late_allreduce, wait_for
from ddp_bench.scaling.subject import PacedStep, Subject
from ddp_bench.scaling.task import Task
from ddp_bench.scaling.trace import bytes_of, state_of

_TIMEOUT = timedelta(seconds=60)


def run_rank(task: Task, rank: int, port: int) -> None:
    """Train as one rank of an arm of torch until this process is ended."""
    torch.set_num_threads(1)
    subject = Subject.of(task)
    model = subject.seeded(task.seed)
    if task.arm != "solo":
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group(
            "gloo", init_method=address, rank=rank, world_size=task.ranks, timeout=_TIMEOUT
        )
    ARMS[task.arm](task, rank, subject, model)


def _solo(task: Task, rank: int, subject: Subject, model: nn.Module) -> None:
    train(task, rank, subject, model, model)


def _ddp(task: Task, rank: int, subject: Subject, model: nn.Module) -> None:
    wrapped = DistributedDataParallel(model)
    if is_slow(task.link):
        wrapped.register_comm_hook(task.link, late_allreduce)
    train(task, rank, subject, model, wrapped)


def _local_sgd(task: Task, rank: int, subject: Subject, model: nn.Module) -> None:
    """Average parameters every so many steps, and gradients never.

    A rank is a subgroup of its own: by default, all ranks of a host would go on averaging.
    """
    own, _ = dist.new_subgroups(group_size=1)
    wrapped = DistributedDataParallel(model)
    state = PostLocalSGDState(process_group=None, subgroup=own, start_localSGD_iter=0)
    wrapped.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=task.period)
    nbytes = bytes_of(model)

    def average(optimizer: torch.optim.Optimizer) -> bool:
        is_due = averager.step % task.period == 0
        averager.average_parameters(optimizer.param_groups)
        if is_due:
            wait_for(task.link, nbytes)
        return is_due

    train(task, rank, subject, model, wrapped, average)


def train(
    task: Task,
    rank: int,
    subject: Subject,
    model: nn.Module,
    wrapped: nn.Module,
    average: Callable[[torch.optim.Optimizer], bool] | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Take steps without end.

    Args:
        task: What is run.
        rank: Which rank this is.
        subject: What is trained.
        model: Holds the parameters.
        wrapped: What is called.
        average: Called after each step; returns whether all ranks have the same model now. Without
            it they always have.
        optimizer: Instead of a fresh one.
    """
    optimizer = optimizer or subject.optimizer(model.parameters())
    step = PacedStep(task, rank, subject)
    batches = subject.shards(task.seed, rank, 1 if task.arm == "solo" else task.ranks)
    for number, batch in zip(itertools.count(1), batches, strict=False):
        step.begin()
        optimizer.zero_grad()
        step.loss(wrapped, batch).backward()
        optimizer.step()
        is_shared = average(optimizer) if average is not None else number % task.every == 0
        if is_shared:
            step.recorder.snapshot(state_of(model))


ARMS: dict[str, Callable[[Task, int, Subject, nn.Module], None]] = {
    "solo": _solo,
    "torch-ddp": _ddp,
    "torch-localsgd": _local_sgd,
}
