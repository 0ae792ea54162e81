from __future__ import annotations

from ddp_bench.scaling.slow import SlowRank
from ddp_bench.scaling.task import Task


def test_a_task_comes_back_from_json_as_it_was() -> None:
    task = Task(
        arm="cpu-async",
        folder="/somewhere",
        seed=7,
        run_s=3.5,
        slow=SlowRank(rank=0, factor=2.5, pattern="stall", half_s=1.0),
        period=8,
        optimizer="sgd",
    )
    assert Task.from_json(task.to_json()) == task
