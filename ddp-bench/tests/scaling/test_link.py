from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_bench.scaling import crew
from ddp_bench.scaling.link import is_slow, late_allreduce
from ddp_bench.scaling.measure import figures
from ddp_bench.scaling.subject import Subject
from ddp_bench.scaling.task import Task
from flodl.testing.sim import SlowLink


@pytest.mark.parametrize("link", [SlowLink(latency_ms=50), SlowLink(mbit_s=8)])
def test_a_link_is_slow_by_latency_or_by_bandwidth(link: SlowLink) -> None:
    assert is_slow(link)
    assert not is_slow(SlowLink())


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_gradients_of_ddp_are_averaged_late() -> None:
    model = torch.nn.Linear(2, 1)
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(SlowLink(latency_ms=80), late_allreduce)
    loss = wrapped(torch.ones(1, 2)).sum()
    started = time.monotonic()
    loss.backward()
    assert time.monotonic() - started >= 0.080
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.ones(1, 2))


def test_a_task_takes_its_link_along() -> None:
    task = Task(arm="solo", folder="", seed=1, run_s=1.0, link=SlowLink(latency_ms=50, mbit_s=10))
    assert Task.from_json(task.to_json()) == task


@pytest.mark.slow
@pytest.mark.multiproc
@pytest.mark.parametrize("arm", ["torch-ddp", "gloo-sync"])
def test_arms_that_average_at_every_step_take_at_least_the_latency_for_each(
    arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # or flodl starts no processes
    task = Task(arm=arm, model="logistic", folder=str(tmp_path), seed=1, run_s=4.0, base_s=0.005)
    task = dataclasses.replace(task, link=SlowLink(latency_ms=100))
    crew.run(task)
    found = figures(task, "link", Subject.named("logistic"), target=2.0)
    assert all(3 < rank.steps <= 45 for rank in found.ranks)
