from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_bench.errors import UsageError
from ddp_bench.scaling import crew
from ddp_bench.scaling.link import LateExchange, SlowLink, late_allreduce, slow_down_flodl
from ddp_bench.scaling.measure import figures
from ddp_bench.scaling.subject import Subject
from ddp_bench.scaling.task import Task
from flodl.distributed.averaging import plane
from flodl.distributed.averaging.exchange import Part, Payload
from flodl.distributed.averaging.solo import SoloExchange

PAYLOAD = Payload(
    values=torch.tensor([1.0, 2.0]), parts=(Part(0, 2),), side=torch.ones(1, dtype=torch.float64)
)


@pytest.mark.parametrize(
    ("link", "seconds"),
    [
        (SlowLink(), 0.0),
        (SlowLink(latency_ms=50), 0.050),
        (SlowLink(mbit_s=8), 0.5),
        (SlowLink(latency_ms=50, mbit_s=8), 0.55),
    ],
)
def test_an_average_is_late_by_latency_and_by_what_its_bytes_take(
    link: SlowLink, seconds: float
) -> None:
    assert link.delay_s(500_000) == pytest.approx(seconds)
    assert link.is_slow is (seconds > 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"latency_ms": -1.0}, "latency -1 ms"), ({"mbit_s": 0.0}, "0 Mbit/s: expected more than 0")],
)
def test_a_link_that_cannot_be_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SlowLink(**options)


def test_an_average_of_flodl_is_there_when_it_would_have_arrived() -> None:
    now = 0.0
    made = SoloExchange()
    late = LateExchange(made, SlowLink(latency_ms=50), clock=lambda: now)
    for _ in range(2):  # each average anew
        late.start(PAYLOAD)
        assert not late.advance()
        now += 0.049
        assert not late.advance()
        now += 0.002
        assert late.advance()
        assert torch.equal(late.result, torch.tensor([1.0, 2.0]))
        assert torch.equal(late.sides, made.sides)


def test_every_average_of_a_process_is_made_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "make_exchange", lambda *_, **__: SoloExchange())
    slow_down_flodl(SlowLink(latency_ms=1))
    assert isinstance(plane.make_exchange(), LateExchange)  # type: ignore[call-arg]


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
