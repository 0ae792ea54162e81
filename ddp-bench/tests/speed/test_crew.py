import sys

import pytest

from ddp_bench.speed import crew
from ddp_bench.speed.crew import Worker, WorkerFailedError
from ddp_bench.speed.workload import Task

pytestmark = pytest.mark.multiproc
TASK = Task(model="noop", arm="torch-eager")


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Return a setter of the program that plays the worker."""

    def play(text):
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))

    return play


def test_worker_trains_what_it_is_told_to():
    with Worker(TASK, {}) as worker:
        assert worker.ready()["param_count"] == 1
        assert len(worker.run("step", 3)["epochs"]) == 3
        assert worker.end()["batches_per_epoch"] == 200


def test_failure_of_a_worker_is_raised_with_its_words():
    task, failure = Task(model="resnet", arm="torch-eager"), pytest.raises(WorkerFailedError)
    with Worker(task, {}) as worker, failure as failed:
        worker.ready()
    assert "model 'resnet'" in str(failed.value)


def test_worker_that_ends_is_told_with_its_code_and_last_words(stand_in):
    stand_in("read task; echo killed for memory >&2; exit 137")
    with Worker(TASK, {}) as worker, pytest.raises(WorkerFailedError, match="137: killed for mem"):
        worker.ready()


def test_worker_that_says_nothing_is_killed(stand_in):
    stand_in("exec sleep 600")
    with Worker(TASK, {}) as worker, pytest.raises(WorkerFailedError, match="no answer within 0 s"):
        worker.ready(timeout_s=0.2)


def test_worker_that_does_not_end_is_killed_on_closing(stand_in, monkeypatch):
    monkeypatch.setattr(crew, "_END_S", 0.2)
    stand_in("exec sleep 600")
    worker = Worker(TASK, {})
    worker.close()
    assert worker._process.returncode == -9
