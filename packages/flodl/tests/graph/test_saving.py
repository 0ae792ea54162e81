import pytest
import torch
from torch import nn

from flodl.checkpoint import checkpoint_info
from flodl.core.errors import CheckpointMismatchError
from flodl.graph import FlowBuilder
from flodl.nn import StateAdd

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def build(seed, activation=nn.GELU):
    torch.manual_seed(seed)
    builder = FlowBuilder(nn.Linear(4, 4)).tag("encoder").through(activation(), nn.BatchNorm1d(4))
    return builder.through(StateAdd()).using("memory").tag("memory").label("net").build().eval()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_round_trip_with_hash_and_label(tmp_path, suffix):
    path = tmp_path / f"model.fdl{suffix}"
    graph, twin = build(0), build(1)
    graph(X)
    graph.save_checkpoint(path, meta={"epoch": 2})
    report = twin.load_checkpoint(path, strict=True)
    assert report.is_complete
    assert report.hash_checked
    graph.reset_state()
    assert torch.equal(twin(X), graph(X))
    info = checkpoint_info(path)
    assert (info.hash, info.label, info.meta) == (graph.structural_hash, "net", {"epoch": 2})
    assert "memory" not in " ".join(info.tensors)


def test_another_architecture_is_refused_and_loads_on_request(tmp_path):
    build(0).save_checkpoint(tmp_path / "a.fdl")
    other = build(1, nn.ReLU)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(CheckpointMismatchError, match=r"label 'net'.*another architecture"):
        other.load_checkpoint(tmp_path / "a.fdl")
    assert all(torch.equal(before[n], v) for n, v in other.state_dict().items())
    assert other.load_checkpoint(tmp_path / "a.fdl", check_hash=False).is_complete


def test_optimizer_stays_valid_after_a_load(tmp_path):
    graph = build(0)
    optimizer = torch.optim.SGD(graph.parameters(), lr=1.0)
    graph.save_checkpoint(tmp_path / "a.fdl")
    graph.load_checkpoint(tmp_path / "a.fdl")
    graph(X).sum().backward()
    before = graph.get_submodule("encoder").bias.clone()
    optimizer.step()
    assert not torch.equal(graph.get_submodule("encoder").bias, before)
