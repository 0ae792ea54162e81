import logging

import pytest
import torch

from ddp_bench.speed import flodl_arms, torch_arms
from ddp_bench.speed.turns import Finished, Turn, Turns
from ddp_bench.speed.workload import Task, Workload


def train(module, arm, count, *, model="mlp", device="cpu"):
    torch.set_num_threads(1)
    workload = Workload(Task(model=model, arm=arm, device=device))
    epochs, facts = [], {}
    turns = Turns((Turn(policy="step") for _ in range(count)), epochs.append, workload.device)
    given = (workload, turns) if module is torch_arms else (workload, turns, facts)
    with pytest.raises(Finished):
        module.drive(*given)
    return epochs, facts


@pytest.mark.parametrize("model", ["mlp", "conv_autoenc"])
def test_trainer_takes_the_steps_of_the_plain_loop(model):
    expected, _ = train(torch_arms, "flodl-graph", 3, model=model)
    found, _ = train(flodl_arms, "flodl-trainer", 3, model=model)
    losses = [epoch.loss for epoch in expected]
    assert [epoch.loss for epoch in found] == pytest.approx(losses, rel=1e-5)


def test_batches_are_the_loaders_alone_once_the_trainer_runs():
    workload = Workload(Task(model="noop", arm="flodl-trainer"))
    turns = Turns(iter([Turn(policy="step")]), lambda _: None, workload.device)
    with pytest.raises(Finished):
        flodl_arms.drive(workload, turns, {})
    assert workload.batches == []


def test_rewritten_model_trains_as_the_other_does():
    expected, _ = train(flodl_arms, "flodl-trainer", 2, model="gated_routing")
    found, _ = train(flodl_arms, "flodl-rewritten", 2, model="gated_routing")
    losses = [epoch.loss for epoch in expected]
    assert [epoch.loss for epoch in found] == pytest.approx(losses, rel=1e-5)


def test_what_flodl_says_of_a_fallback_is_kept():
    logger = logging.getLogger("flodl.engine.fallback")
    with flodl_arms.FallbackWatch() as watch:
        logger.warning("capture: falling back to %s", "eager")
    logger.warning("capture: later")
    assert watch.messages == ["capture: falling back to eager"]


@pytest.mark.cuda
@pytest.mark.parametrize("arm", ["flodl-step", "flodl-captured", "flodl-captured-compiled"])
def test_captured_arms_run_captured_and_take_the_same_steps(arm):
    expected, _ = train(torch_arms, "torch-eager", 3, device="cuda")
    found, facts = train(flodl_arms, arm, 3, device="cuda")
    assert facts["capture"] == {"ok": True, "reason": None}
    losses = [epoch.loss for epoch in expected]
    assert [epoch.loss for epoch in found] == pytest.approx(losses, rel=2e-3)
