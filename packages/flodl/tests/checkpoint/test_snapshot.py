import pytest
import torch
from torch import nn

from flodl.checkpoint import checkpoint_info, load_checkpoint
from flodl.checkpoint.snapshot import TensorCopy, snapshot_cpu
from flodl.core.errors import CheckpointMismatchError
from flodl.engine.background import CpuWorker


class Tied(nn.Module):
    structural_hash = "ab" * 32

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


@pytest.fixture
def trained(request):
    place = getattr(request, "param", "cpu")
    torch.manual_seed(0)
    model = Tied().to(place)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 3, device=place)).sum().backward()
        optimizer.step()

    step()
    return model, optimizer, step


PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.parametrize("trained", PLACES, indirect=True)
def test_a_snapshot_does_not_follow_the_training(trained):
    model, optimizer, step = trained
    expected = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    moment = optimizer.state[model.first.weight]["exp_avg"].cpu().clone()
    snapshot = snapshot_cpu(model, optimizer=optimizer, metrics={"loss": 0.5}, epoch=3)
    for _ in range(3):
        step()
    snapshot.wait()
    assert snapshot.ready
    assert set(snapshot.params) == {
        "first.weight",
        "first.bias",
        "norm.weight",
        "norm.bias",
        "second.weight",
    }
    assert set(snapshot.buffers) == {
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }
    for name, value in {**snapshot.params, **snapshot.buffers}.items():
        assert value.device.type == "cpu"
        assert not value.requires_grad
        assert torch.equal(value, expected[name]), name
    assert snapshot.params["first.weight"] is snapshot.params["second.weight"]
    assert torch.equal(snapshot.optimizer_state["state"][0]["exp_avg"], moment)
    assert snapshot.optimizer_state["state"][0]["step"] == 1
    assert (snapshot.epoch, snapshot.metrics) == (3, {"loss": 0.5})


@pytest.mark.parametrize("trained", PLACES, indirect=True)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_snapshot_is_saved_as_a_checkpoint_in_the_background(trained, suffix, tmp_path):
    model, _, step = trained
    expected = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    metrics = {"loss": torch.tensor(0.25), "bad": float("nan")}
    path = tmp_path / f"model.fdl{suffix}"
    with CpuWorker() as worker:
        snapshot = snapshot_cpu(model, metrics=metrics, epoch=2)
        worker.submit_latest("checkpoint", snapshot.save_file, path)
        step()
    info = checkpoint_info(path)
    assert info.hash == model.structural_hash
    assert info.buffers == ("norm.num_batches_tracked", "norm.running_mean", "norm.running_var")
    assert info.aliases == {"second.weight": "first.weight"}
    assert info.meta == {"epoch": 2, "metrics": {"loss": 0.25, "bad": None}}
    other = Tied()
    assert load_checkpoint(path, other, strict=True).hash_checked
    for name, value in other.state_dict().items():
        assert torch.equal(value, expected[name]), name
    with pytest.raises(CheckpointMismatchError):
        load_checkpoint(path, other, "cd" * 32)


def test_a_snapshot_without_extras_has_none(trained):
    snapshot = snapshot_cpu(nn.Linear(2, 2))
    assert (snapshot.epoch, snapshot.metrics, snapshot.optimizer_state) == (None, {}, None)
    assert snapshot.structural_hash == ""
    assert snapshot.ready


@pytest.mark.cuda
def test_without_room_for_a_copy_the_training_stream_waits(trained, monkeypatch):
    from flodl.checkpoint import snapshot as module

    monkeypatch.setattr(module, "_free_bytes", lambda device: 0)
    model = nn.Linear(512, 512).cuda()
    expected = model.weight.detach().cpu().clone()
    snapshot = snapshot_cpu(model)
    with torch.no_grad():
        model.weight.zero_()
    snapshot.wait()
    assert torch.equal(snapshot.params["weight"], expected)
    assert not snapshot._staged


@pytest.mark.cuda
def test_taking_a_snapshot_does_not_wait_for_the_gpu():
    model = nn.Linear(64, 64).cuda()
    snapshot_cpu(model).wait()
    torch.cuda.set_sync_debug_mode("error")
    try:
        snapshot = snapshot_cpu(model)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    snapshot.wait()
    assert torch.equal(snapshot.params["weight"], model.weight.cpu())
    assert snapshot.params["weight"].is_pinned()


def test_copied_tensors_stay_as_they_were_and_share_what_they_shared():
    base = torch.arange(6.0)
    copy = TensorCopy({"a": base, "b": base, "part": base[:2]})
    base.zero_()
    found = copy.tensors()
    assert found["a"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["part"].tolist() == [0, 1]
    assert found["a"].data_ptr() == found["b"].data_ptr() != base.data_ptr()


@pytest.mark.cuda
def test_tensors_copied_from_a_gpu_are_those_before_the_next_step():
    base = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    copy = TensorCopy({"a": base})
    base.zero_()
    assert torch.equal(copy.tensors()["a"], torch.arange(1 << 20, dtype=torch.float32))
