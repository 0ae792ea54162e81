from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch
from torch import nn

from ddp_bench.scaling.slow import Paced
from ddp_bench.scaling.task import Task
from ddp_bench.scaling.trace import (
    Recorder,
    load_snapshot,
    read_snapshots,
    read_steps,
    state_of,
)


def make_task(folder: Path) -> Task:
    return Task(arm="torch-ddp", folder=str(folder), seed=1, run_s=1.0)


def test_steps_are_read_as_written_and_a_torn_last_one_is_left_out(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    with closing(Recorder(task, 1)) as recorder:
        for number in range(3):
            recorder.step(Paced(started=number, padded=number + 0.5, wanted=0.6), 64)
    with task.steps_file(1).open("ab") as file:
        file.write(b"torn")
    steps = read_steps(task, 1)
    assert [step.started for step in steps] == [0, 1, 2]
    assert (steps[2].padded, steps[2].wanted, steps[2].samples) == (2.5, 0.6, 64)
    assert read_steps(task, 0) == []


def test_copies_of_the_first_rank_s_model_load_into_another(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[1].running_mean.fill_(0.25)
    with closing(Recorder(task, 1)) as silent:
        silent.snapshot(state_of(model))
    with closing(Recorder(task, 0)) as recorder, torch.no_grad():
        recorder.snapshot(state_of(model))
        model[0].weight.zero_()
        recorder.snapshot(state_of(model))
    with task.snapshots_file.open("ab") as file:
        file.write(b"torn")
    numel = sum(tensor.numel() for tensor in state_of(model))
    copies = read_snapshots(task, numel)
    assert len(copies) == 2
    assert copies[0][0] <= copies[1][0]
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    load_snapshot(other, copies[1][1])
    for ours, theirs in zip(state_of(model), state_of(other), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(copies[0][1], copies[1][1])
