from __future__ import annotations

import pytest
import torch
from torch import nn

from ddp_bench.errors import BenchError
from ddp_bench.scaling.flodl_arm import MODES, Observer, wait_for_steps
from ddp_bench.scaling.scenario import FLODL
from ddp_bench.scaling.task import Task
from flodl.distributed.config import ElCheConfig


def observer(config: ElCheConfig) -> Observer:
    return Observer(Task(arm="x", folder="", seed=1, run_s=1.0, every=3), config)


def values(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_there_is_a_mode_for_every_arm() -> None:
    assert set(MODES) == set(FLODL)


def test_ranks_that_average_at_every_step_are_looked_at_now_and_then() -> None:
    watched, model = observer(ElCheConfig.cpu_sync()), nn.Linear(2, 1)
    seen = [watched.shared(model) is not None for _ in range(7)]
    assert seen == [False, False, False, True, False, False, True]


def test_an_average_taken_over_whole_is_seen_where_the_model_changed_between_steps() -> None:
    watched, model = observer(ElCheConfig.cpu_cadence()), nn.Linear(2, 1)
    assert watched.shared(model) is None
    watched.keep(model)
    assert watched.shared(model) is None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    found = watched.shared(model)
    assert found is not None
    assert torch.equal(torch.cat([part.detach().reshape(-1) for part in found]), values(model))
    watched.keep(model)
    assert watched.shared(model) is None


def test_the_average_is_told_from_a_model_that_was_blended_towards_it() -> None:
    config = ElCheConfig.cpu_async(easgd_alpha=0.25)
    watched, model = observer(config), nn.Linear(2, 1)
    average = torch.tensor([3.0, -1.0, 0.5])
    watched.keep(model)
    with torch.no_grad():
        blended = 0.75 * values(model) + 0.25 * average
        model.weight.copy_(blended[:2].view(1, 2))
        model.bias.copy_(blended[2:])
    found = watched.shared(model)
    assert found is not None
    torch.testing.assert_close(found[0], average)


def test_a_run_that_takes_no_step_is_an_error(tmp_path: object) -> None:
    task = Task(arm="cpu-sync", folder=str(tmp_path), seed=1, run_s=1.0)
    with pytest.raises(BenchError, match="before the run was over"):
        wait_for_steps(task, 60.0, lambda: True)
    with pytest.raises(BenchError, match="within 0 s"):
        wait_for_steps(task, 0.0, lambda: False)
