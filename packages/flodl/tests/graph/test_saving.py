import json

import pytest
import torch
from torch import nn

import flodl
from flodl.checkpoint import checkpoint_info
from flodl.core.errors import CheckpointMismatchError, GraphPathError, TopologyError
from flodl.graph import FlowBuilder, Graph
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


def test_whole_model_comes_back(tmp_path):
    torch.manual_seed(0)
    inner = FlowBuilder(nn.Linear(2, 2)).tag("h").label("inner").build()
    graph = FlowBuilder(inner).through(nn.BatchNorm1d(2)).through(torch.tanh).tag("y").build()
    graph(torch.randn(4, 2))
    graph.eval().to(torch.bfloat16)
    for name in ("a.fdl", "a.fdl.gz"):
        graph.save(tmp_path / name, meta={"epoch": 3})
        before = torch.random.get_rng_state()
        again = Graph.load(tmp_path / name, device="cpu").eval()
        assert torch.equal(torch.random.get_rng_state(), before)
        x = torch.randn(4, 2, dtype=torch.bfloat16)
        assert torch.equal(again(x), graph(x))
        assert again.structural_hash == graph.structural_hash


def test_model_of_unknown_classes_is_not_written(tmp_path):
    class Own(nn.Linear):
        pass

    graph = FlowBuilder(Own(2, 2)).build()
    with pytest.raises(TopologyError, match="Own\nhint: decorate"):
        graph.save(tmp_path / "a.fdl")
    assert list(tmp_path.iterdir()) == []
    graph.save(tmp_path / "a.fdl", registry={"own": Own})
    with pytest.raises(TopologyError, match="class 'own' is not known"):
        Graph.load(tmp_path / "a.fdl")
    assert isinstance(Graph.load(tmp_path / "a.fdl", {"own": Own}).get_submodule("own_1"), Own)


def test_file_whose_architecture_is_larger_than_its_weights_is_refused(tmp_path):
    graph = FlowBuilder(nn.Linear(2, 2)).build()
    topology = graph.topology()
    topology["nodes"][1]["module"][""]["config"]["out_features"] = 10**12
    extra = {"fdl.topology": json.dumps(topology)}
    flodl.save_checkpoint(tmp_path / "a.fdl", graph, extra=extra)
    with pytest.raises(TopologyError, match="does not fit its weights"):
        Graph.load(tmp_path / "a.fdl")
    graph.save_checkpoint(tmp_path / "b.fdl")
    with pytest.raises(TopologyError, match="weights only, no architecture"):
        Graph.load(tmp_path / "b.fdl")


def test_topology_alone_is_a_json_file(tmp_path):
    graph = FlowBuilder(nn.Linear(2, 2)).tag("a").build()
    graph.save_topology(tmp_path / "a.json")
    assert Graph.load_topology(tmp_path / "a.json").structural_hash == graph.structural_hash
    (tmp_path / "b.json").write_text("[" * 100000)
    for name in ("b.json", "a.fdl"):
        (tmp_path / "a.fdl").write_text("no")
        with pytest.raises(TopologyError, match="no JSON document"):
            Graph.load_topology(tmp_path / name)


def test_mismatch_says_how_the_architectures_differ(tmp_path):
    def looped(n):
        return FlowBuilder(nn.Linear(2, 2)).loop_body(nn.Linear(2, 2)).for_n(n).build()

    looped(3).save_checkpoint(tmp_path / "a.fdl", topology=True)
    with pytest.raises(CheckpointMismatchError, match=r"they differ:\n  step 3: loop_2 .*\"n\": 3"):
        looped(5).load_checkpoint(tmp_path / "a.fdl")


def test_subgraph_is_loaded_alone(tmp_path):
    def encoder():
        scan = FlowBuilder(nn.Linear(2, 2)).tag("h").label("scan").build()
        return FlowBuilder(scan).through(nn.Linear(2, 2)).tag("o").label("encoder").build()

    trained = encoder()
    trained.save_checkpoint(tmp_path / "e.fdl.gz")
    model = FlowBuilder(encoder()).through(nn.Linear(2, 1)).tag("head").build()
    head = model.get_submodule("head").weight.clone()
    assert model.load_subgraph_checkpoint("encoder", tmp_path / "e.fdl.gz").is_complete
    loaded = model.subgraph("encoder").state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in trained.state_dict().items())
    assert torch.equal(model.get_submodule("head").weight, head)
    with pytest.raises(CheckpointMismatchError):
        model.load_subgraph_checkpoint("encoder.scan", tmp_path / "e.fdl.gz")
    with pytest.raises(GraphPathError, match=r"'head'\): that is a tag"):
        model.load_subgraph_checkpoint("head", tmp_path / "e.fdl.gz")


def test_source_configuration_is_written_beside(tmp_path):
    graph = FlowBuilder(nn.Linear(2, 2)).build()
    assert graph.source_config is None
    graph.set_source_config('{"hidden": 2}')
    graph.save_checkpoint(tmp_path / "model.fdl.gz")
    assert (tmp_path / "model.config.json").read_text() == '{"hidden": 2}'
    graph.clear_source_config()
    graph.save_checkpoint(tmp_path / "other.fdl")
    assert not (tmp_path / "other.config.json").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tied_weights_come_back_tied(tmp_path, dtype):
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    cell = nn.LSTM(4, 4, batch_first=True)
    cell.weight_hh_l0 = cell.weight_ih_l0
    shared = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    shared.append(shared[0])
    flow = FlowBuilder(embedding).tag("words").through(cell, out=0).tag("cell").through(shared)
    graph = flow.tag("shared").through(head).tag("head").build().to(dtype)
    graph.save(tmp_path / "tied.fdl")
    loaded = Graph.load(tmp_path / "tied.fdl")
    words = torch.tensor([[1, 2, 3]])
    assert torch.equal(loaded(words), graph(words))
    parts = {name: loaded.get_submodule(name) for name in ("words", "cell", "shared", "head")}
    assert parts["head"].weight is parts["words"].weight
    assert parts["cell"].weight_hh_l0 is parts["cell"].weight_ih_l0
    assert parts["shared"][2].weight is parts["shared"][0].weight
    assert len(list(loaded.parameters())) == len(list(graph.parameters()))
    for model in (graph, loaded):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        model(words).float().square().sum().backward()
        optimizer.step()
    assert torch.equal(loaded(words), graph(words))
