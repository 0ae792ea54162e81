import pytest
import torch

from ddp_bench.speed.plain import EncoderLayer
from ddp_bench.speed.workload import Task, Workload, apply_settings


def layers(model):
    return [module for module in model.modules() if isinstance(module, EncoderLayer)]


def test_all_arms_get_equal_weights_and_batches():
    one, other = (Workload(Task(model="mlp", arm=arm)) for arm in ("torch-eager", "flodl-graph"))
    for (x, y), (u, v) in zip(one.batches, other.batches, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
    weights = zip(one.plain().parameters(), other.graph().parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in weights)


def test_batches_of_an_epoch_differ_and_so_do_those_of_another_seed():
    batches = Workload(Task(model="mlp", arm="torch-eager")).batches
    assert not torch.equal(batches[0][0], batches[1][0])
    other = Workload(Task(model="mlp", arm="torch-eager", seed=1)).batches
    assert not torch.equal(batches[0][0], other[0][0])


@pytest.mark.parametrize(("model", "count"), [("mlp", 10), ("noop", 200)])
def test_small_epochs_have_few_batches_unless_there_is_nothing_to_compute(model, count):
    assert len(Workload(Task(model=model, arm="torch-eager")).batches) == count


def test_target_of_the_autoencoder_is_its_input():
    inputs, targets = Workload(Task(model="conv_autoenc", arm="torch-eager")).batches[0]
    assert targets is inputs


@pytest.mark.parametrize(("variant", "expected"), [("", False), ("weights", True)])
def test_variant_says_whether_attention_returns_its_weights(variant, expected):
    workload = Workload(Task(model="transformer", arm="torch-eager", variant=variant))
    assert {layer.need_weights for layer in layers(workload.plain())} == {expected}


def test_half_precision_computes_under_autocast():
    workload = Workload(Task(model="mlp", arm="torch-eager", precision="bf16"))
    seen = []
    model = workload.plain()
    model.layers[0].register_forward_hook(lambda *call: seen.append(call[2].dtype))
    workload.loss(model, *workload.batches[0])
    assert seen == [torch.bfloat16]


def test_settings_are_set_and_told(monkeypatch):
    before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    autotune = torch.backends.cudnn.benchmark
    try:
        told = apply_settings(Task(model="gru_seq", arm="torch-eager", precision="tf32"))
        assert told["float32_matmul_precision"] == "high"
        assert (told["threads"], told["cudnn_benchmark"]) == (1, False)
        assert apply_settings(Task(model="mlp", arm="torch-eager"))["cudnn_benchmark"] is True
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.set_num_threads(before[1])
        torch.backends.cudnn.benchmark = autotune
