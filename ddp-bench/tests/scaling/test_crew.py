from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from ddp_bench.scaling import crew
from ddp_bench.scaling.measure import figures
from ddp_bench.scaling.scenario import FLODL
from ddp_bench.scaling.slow import SlowRank
from ddp_bench.scaling.subject import Subject
from ddp_bench.scaling.task import Task

KEPT = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def left_running() -> list[list[str]]:
    """Return the command lines of what the runs left, but for what all of them share."""
    found = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    return [line for line in found if not any(word in " ".join(line) for word in KEPT)]


def test_programs_start_as_those_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    found = crew.user_environment()
    assert "PYTHONDONTWRITEBYTECODE" not in found
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["PATH"] == os.environ["PATH"]


@pytest.mark.slow
@pytest.mark.multiproc
@pytest.mark.parametrize("arm", ["solo", "torch-ddp", "torch-localsgd", *FLODL])
def test_every_arm_trains_and_leaves_nothing_running(
    arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # or flodl starts no processes
    subject = Subject.named("logistic")
    task = Task(
        arm=arm,
        model="logistic",
        folder=str(tmp_path),
        seed=1,
        run_s=4.0,
        slow=SlowRank(factor=2.5),
        rest_s=0.002,
        period=8,
    )
    crew.run(task)
    found = figures(task, "slow", subject, target=2.0)
    losses = [loss for _, loss in found.curve]
    assert losses[-1] < losses[0]
    assert all(rank.steps > 10 for rank in found.ranks)
    assert len(found.ranks) == (1 if arm == "solo" else 2)
    if arm in FLODL:
        assert found.is_exact
        assert found.windows
    if arm.endswith(("cadence", "async")):
        assert found.ranks[0].steps > 1.5 * found.ranks[1].steps
    assert left_running() == []
