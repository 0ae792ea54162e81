import pytest
import torch

from ddp_bench.speed import lightning_arm, torch_arms
from ddp_bench.speed.turns import Finished, Turn, Turns
from ddp_bench.speed.workload import Task, Workload


def test_batches_are_gone_over_again_and_again():
    batches = lightning_arm.Batches([(torch.ones(1), torch.ones(1))] * 3)
    assert len(batches) == 3
    assert [len(list(batches)) for _ in range(2)] == [3, 3]


@pytest.mark.skipif(not lightning_arm.is_installed(), reason="pytorch-lightning is not installed")
@pytest.mark.filterwarnings("ignore")
def test_lightning_takes_the_steps_of_the_plain_loop():
    torch.set_num_threads(1)
    found = {}
    for arm, module in (("torch-fused", torch_arms), ("lightning", lightning_arm)):
        workload = Workload(Task(model="mlp", arm=arm))
        epochs = found[arm] = []
        turns = (Turn(policy=policy, keep=5) for policy in ("step", "epoch"))
        with pytest.raises(Finished):
            module.drive(workload, Turns(turns, epochs.append, workload.device))
    assert found["lightning"][0].losses == pytest.approx(found["torch-fused"][0].losses)
    assert found["lightning"][1].loss == pytest.approx(found["torch-fused"][1].loss)
