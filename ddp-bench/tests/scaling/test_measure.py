from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ddp_bench.scaling.measure import figures, target_loss, time_to_loss
from ddp_bench.scaling.slow import Paced, SlowRank
from ddp_bench.scaling.subject import Subject
from ddp_bench.scaling.task import Task
from ddp_bench.scaling.trace import Recorder, state_of

REST_S = 0.002


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject.named("logistic")


def write_run(task: Task, lasts: tuple[float, ...], seconds: float) -> None:
    """Write steps that last so long, one after the other, and two copies of a model."""
    for rank, length in enumerate(lasts):
        with closing(Recorder(task, rank)) as recorder:
            for number in range(round(seconds / length)):
                started = 1000.0 + number * length
                padded = started + length - REST_S
                recorder.step(Paced(started=started, padded=padded, wanted=length), 64)


def snapshots_at(task: Task, subject: Subject, times: list[float], monkeypatch: Any) -> None:
    model = subject.seeded(1)
    with closing(Recorder(task, 0)) as recorder:
        for when in times:
            monkeypatch.setattr("ddp_bench.scaling.trace.time.monotonic", lambda when=when: when)
            recorder.snapshot(state_of(model))
    monkeypatch.undo()


def make_task(folder: Path, arm: str = "torch-ddp", **options: Any) -> Task:
    fields: dict[str, Any] = {"seed": 1, "run_s": 10.0, "rest_s": REST_S, **options}
    return Task(arm=arm, model="logistic", folder=str(folder), **fields)


def test_the_target_is_the_mean_of_three_evaluations_at_four_fifths() -> None:
    curve = [(float(second), 1.0 - second / 20) for second in range(1, 11)]
    assert target_loss(curve, 10.0) == pytest.approx(0.6)


def test_a_loss_is_reached_where_it_stays_for_two_evaluations() -> None:
    curve = [(1.0, 0.9), (2.0, 0.4), (3.0, 0.6), (4.0, 0.5), (5.0, 0.4), (6.0, 0.7)]
    assert time_to_loss(curve, 0.5) == 4.0
    assert time_to_loss(curve, 0.45) is None
    assert time_to_loss(curve[:2], 0.5) is None


def test_figures_come_from_what_ranks_wrote_within_the_run(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tmp_path, slow=SlowRank(factor=2.5))
    write_run(task, (0.020, 0.050), seconds=12.0)
    snapshots_at(task, subject, [1001.0, 1009.0, 1011.0], monkeypatch)
    found = figures(task, "slow", subject, target=100.0)
    assert [rank.steps for rank in found.ranks] == [500, 200]
    assert found.samples_per_s == pytest.approx(64 * 700 / 10)
    assert found.realised_factor == pytest.approx(2.5)
    assert found.is_paced
    assert found.fast_idle == pytest.approx(0.0, abs=0.01)
    assert [when for when, _ in found.curve] == [1.0, 9.0]
    assert found.time_to_loss == 1.0
    assert found.payload_bytes == 500 * 4 * 7850
    assert found.windows is None
    assert found.is_exact is None


def test_a_rank_that_waits_is_idle_and_one_that_is_late_is_off_its_pace(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tmp_path)
    with closing(Recorder(task, 0)) as fast, closing(Recorder(task, 1)) as slow:
        for number in range(200):
            started = 1000.0 + number * 0.050
            fast.step(Paced(started=started, padded=started + 0.018, wanted=0.020), 64)
            slow.step(Paced(started=started, padded=started + 0.048, wanted=0.045), 64)
    snapshots_at(task, subject, [1001.0], monkeypatch)
    found = figures(task, "slow", subject)
    assert found.fast_idle == pytest.approx(0.6, abs=0.01)
    assert found.ranks[1].pace == pytest.approx(50 / 45)
    assert not found.is_paced
    assert found.time_to_loss is None


def test_an_arm_of_flodl_brings_its_windows_and_accounts(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tmp_path, arm="gloo-cadence")
    write_run(task, (0.020, 0.020), seconds=10.0)
    snapshots_at(task, subject, [1001.0], monkeypatch)
    window = {"window_ms": 500.0, "reduce_ms": 10.0}
    outcome = {"windows": [window] * 30, "finished": [0, 1], "inexact": [2], "deaths": 0}
    task.outcome_file.write_text(json.dumps(outcome))
    found = figures(task, "slow", subject)
    assert found.windows == 20
    assert found.overhead == pytest.approx(0.02)
    assert found.is_exact
    assert found.payload_bytes == 20 * 4 * 7850
    for wrong in ({"inexact": [1]}, {"deaths": 1}, {"finished": []}):
        task.outcome_file.write_text(json.dumps({**outcome, **wrong}))
        assert figures(task, "slow", subject).is_exact is False


def test_shares_after_a_change_count_from_the_fifth_average_on(
    tmp_path: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowRank(factor=3.0, pattern="change", half_s=2.0)
    task = make_task(tmp_path, arm="gloo-cadence", slow=slow)
    write_run(task, (0.020, 0.060), seconds=10.0)
    times = [1001.0, *(1002.1 + 0.5 * number for number in range(10))]
    snapshots_at(task, subject, times, monkeypatch)
    outcome = {"windows": [], "finished": [0], "inexact": [], "deaths": 0}
    task.outcome_file.write_text(json.dumps(outcome))
    found = figures(task, "change", subject)
    assert found.shares_after == pytest.approx(0.25, abs=0.005)
    assert found.share_error == pytest.approx(0.0, abs=0.02)
    early = dataclasses.replace(task, slow=dataclasses.replace(slow, half_s=9.0))
    assert figures(early, "change", subject).shares_after is None
