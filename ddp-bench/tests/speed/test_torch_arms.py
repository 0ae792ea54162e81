import pytest
import torch

from ddp_bench.speed import torch_arms
from ddp_bench.speed.turns import Finished, Turn, Turns
from ddp_bench.speed.workload import Task, Workload


def train(arm, *policies, device="cpu", model="noop", keep=3):
    torch.set_num_threads(1)
    workload = Workload(Task(model=model, arm=arm, device=device))
    epochs = []
    turns = (Turn(policy=policy, keep=keep) for policy in policies)
    with pytest.raises(Finished):
        torch_arms.drive(workload, Turns(turns, epochs.append, workload.device))
    return workload, epochs


@pytest.mark.parametrize("arm", ["torch-eager", "torch-fused", "flodl-graph"])
def test_losses_read_at_the_end_are_those_read_each_step(arm):
    _, by_step = train(arm, "step", "step", model="mlp")
    _, by_epoch = train(arm, "epoch", "epoch", model="mlp")
    assert [e.loss for e in by_step] == pytest.approx([e.loss for e in by_epoch], rel=1e-6)
    assert by_step[1].loss < by_step[0].loss


def test_each_step_takes_the_next_batch():
    workload, (epoch,) = train("torch-eager", "step", model="mlp")
    model = workload.model_def.pair(is_small=True)[0]
    x, y = workload.batches[0]
    assert epoch.losses[0] == pytest.approx(workload.loss(model, x, y).item(), rel=1e-6)
    assert len(set(epoch.losses)) == 3


def test_graph_takes_the_same_steps_as_the_plain_model():
    _, (plain,) = train("torch-eager", "step", model="mlp")
    _, (graph,) = train("flodl-graph", "step", model="mlp")
    assert graph.losses == plain.losses


@pytest.mark.cuda
@pytest.mark.parametrize("arm", ["torch-manual-graph", "torch-manual-compiled"])
def test_capture_by_hand_takes_the_same_steps_on_the_same_batches(arm):
    _, (eager, _) = train("torch-eager", "step", "step", device="cuda", model="mlp", keep=10)
    _, (hand, _) = train(arm, "step", "step", device="cuda", model="mlp", keep=10)
    assert hand.losses == pytest.approx(eager.losses, rel=2e-3)
