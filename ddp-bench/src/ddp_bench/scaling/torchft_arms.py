"""Local SGD and DiLoCo of torchft, each rank a replica group of its own."""

from __future__ import annotations

import importlib
import logging
import os
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch._C._distributed_c10d import TCPStore

from ddp_bench.scaling.link import wait_for
from ddp_bench.scaling.subject import Subject
from ddp_bench.scaling.task import Task
from ddp_bench.scaling.torch_arms import train
from ddp_bench.scaling.trace import bytes_of

NAMES = ("torchft-localsgd", "torchft-diloco")
OUTER_LR, OUTER_MOMENTUM = 0.7, 0.9
_TIMEOUT = timedelta(seconds=60)


def missing() -> str | None:
    """Return why the arms cannot run, ``None`` where they can."""
    try:
        importlib.import_module("torchft.local_sgd")
    except ImportError as error:
        return f"torchft does not load: {error}"
    return None


def run_rank(task: Task, rank: int, port: int) -> None:
    """Train as one rank until this process is ended.

    Args:
        task: What is run.
        rank: Which rank; the first has the lighthouse, where replica groups meet, in its process.
        port: Of the lighthouse.
    """
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    os.environ.setdefault("RUST_LOG", "error")  # or each heartbeat is told
    lighthouse = _lighthouse(task.ranks, port) if rank == 0 else None
    subject = Subject.of(task)
    model = subject.seeded(task.seed)
    optimizer = subject.optimizer(model.parameters())
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = _manager(rank, task.ranks, port, store, model, optimizer)
    local_sgd: Any = importlib.import_module("torchft.local_sgd")
    if task.arm == "torchft-localsgd":
        averaging = local_sgd.LocalSGD(manager, model, optimizer, sync_every=task.period)
    else:
        outer = torch.optim.SGD(
            model.parameters(), lr=OUTER_LR, momentum=OUTER_MOMENTUM, nesterov=True
        )
        averaging = local_sgd.DiLoCo(
            manager, [model], optimizer, outer, sync_every=task.period, pin_memory=False
        )
    steps, nbytes = 0, bytes_of(model)

    def count(_: torch.optim.Optimizer) -> bool:
        nonlocal steps
        steps += 1
        is_due = steps % task.period == 0
        if is_due:  # the optimizer's step has averaged
            wait_for(task.link, nbytes)
        return is_due

    with averaging:
        train(task, rank, subject, model, model, count, optimizer=optimizer)
    del lighthouse


def _address(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _lighthouse(ranks: int, port: int) -> Any:
    coordination: Any = importlib.import_module("torchft.coordination")
    return coordination.LighthouseServer(bind=f"127.0.0.1:{port}", min_replicas=ranks)


def _manager(
    rank: int,
    ranks: int,
    port: int,
    store: TCPStore,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> Any:
    manager: Any = importlib.import_module("torchft.manager")
    groups: Any = importlib.import_module("torchft.process_group")

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    return manager.Manager(
        pg=groups.ProcessGroupGloo(timeout=_TIMEOUT),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=ranks,
        use_async_quorum=False,
        init_sync=False,  # all start from the same weights
        timeout=_TIMEOUT,
        replica_id=f"replica{rank}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=_address(port),
    )
