"""A graph is a module: everything that works on modules works on it."""

import copy
import io
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_sharer

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from flodl.graph import FlowBuilder, Graph, GraphInputError

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def build():
    torch.manual_seed(0)
    inner = FlowBuilder(nn.Linear(4, 4)).through(nn.Dropout(0.5)).tag("dropped").label("inner")
    builder = FlowBuilder(inner.build()).also(nn.Linear(4, 4)).tag("sum")
    return builder.through(nn.BatchNorm1d(4)).label("net").build()


def test_it_is_a_module_with_names_from_tags_labels_and_ids():
    graph = build()
    assert isinstance(graph, nn.Module)
    assert isinstance(graph, Graph)
    assert [name for name, _ in graph.named_parameters()] == [
        "inner.linear_1.weight",
        "inner.linear_1.bias",
        "sum.weight",
        "sum.bias",
        "batchnorm1d_4.weight",
        "batchnorm1d_4.bias",
    ]
    assert graph.label == "net"


def test_state_dict_loads_into_a_twin():
    graph, twin = build(), build()
    nn.init.ones_(graph.get_submodule("sum").weight)
    twin.load_state_dict(graph.state_dict())
    assert torch.equal(graph.eval()(X), twin.eval()(X))


def test_train_and_eval_reach_all_modules():
    graph = build()
    assert not torch.equal(graph(X), graph(X))
    graph.eval()
    assert torch.equal(graph(X), graph(X))
    assert not graph.get_submodule("inner").training


def test_inputs_are_checked_by_count_and_name():
    graph = FlowBuilder(input_name="x").input("ctx").label("g").build()
    cases = {
        r"takes \(x, ctx\): 'ctx' is missing\nhint: .*None": ((X,), {}),
        "3 positional values": ((X, X, X), {}),
        "'x' given twice": ((X,), {"x": X, "ctx": X}),
        "'ctxx' is no input; 'ctx' is missing": ((X,), {"ctxx": X}),
        "'x' is missing": ((), {"ctx": X}),
    }
    for words, (args, kwargs) in cases.items():
        with pytest.raises(GraphInputError, match=words):
            graph(*args, **kwargs)
    with pytest.raises(TypeError):
        graph()


@pytest.mark.parametrize("way", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies_after_a_forward_compute_the_same(way):
    graph = build().eval()
    graph(X).sum().backward()
    twin = way(graph)
    assert torch.equal(twin(X), graph(X))
    assert twin.structural_hash == graph.structural_hash
    assert twin.get_submodule("sum").weight is not graph.get_submodule("sum").weight
    assert twin.tag_names == graph.tag_names


def test_torch_save_and_load():
    graph = build().eval()
    graph(X)
    stream = io.BytesIO()
    torch.save(graph, stream)
    stream.seek(0)
    twin = torch.load(stream, weights_only=False)
    assert torch.equal(twin(X), graph(X))


@pytest.mark.multiproc
def test_spawned_process_runs_a_graph():
    graph = build().eval().requires_grad_(False)
    # the graph itself is what the child unpickles and calls: test modules need not be importable
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(graph, X).result(timeout=120)
    resource_sharer.stop()  # the thread that hands over the memory of shared tensors
    assert torch.equal(result, graph(X))


def test_averaged_model_takes_a_graph():
    graph = build()
    averaged = AveragedModel(graph)
    graph(X)
    averaged.update_parameters(graph)
    assert averaged.eval()(X).shape == X.shape


def test_conversion_forgets_retained_values():
    graph = build()
    graph(X)
    assert graph.tagged("sum") is not None
    assert graph.to(torch.float64)(X.double()).dtype is torch.float64
    graph.float()
    assert graph.tagged("sum") is None
    assert graph.to("meta").get_submodule("sum").weight.is_meta


def test_hooks_of_graph_and_steps_run():
    graph, seen = build(), []
    graph.register_forward_hook(lambda *_: seen.append("graph"))
    graph.get_submodule("sum").register_forward_hook(lambda *_: seen.append("step"))
    graph(X)
    assert seen == ["step", "graph"]


def test_replaced_submodule_is_used_by_the_next_call():
    graph = build().eval()
    before, version = graph.structural_hash, graph.version
    graph.set_submodule("sum", nn.Identity())
    inner = graph.get_submodule("inner").eval()(X)
    expected = graph.get_submodule("batchnorm1d_4")(inner + inner)
    assert torch.equal(graph(X), expected)
    assert graph.structural_hash != before
    assert graph.version > version


def test_replacement_inside_a_nested_graph_changes_both_hashes():
    graph = build()
    inner = graph.get_submodule("inner")
    before = graph.structural_hash, inner.structural_hash
    graph.set_submodule("inner.linear_1", nn.Identity())
    assert graph.structural_hash != before[0]
    assert inner.structural_hash != before[1]


def test_trainable_parameters_leave_frozen_ones_out():
    graph = build()
    graph.get_submodule("inner").requires_grad_(False)
    assert len(list(graph.trainable_parameters())) == 4
    assert len(list(graph.parameters())) == 6


def test_functional_call_replaces_parameters():
    graph = FlowBuilder(nn.Linear(4, 4)).build()
    parameters = {name: torch.zeros_like(value) for name, value in graph.state_dict().items()}
    assert torch.func.functional_call(graph, parameters, (X,)).eq(0).all()


def test_lazy_modules_work_after_the_first_forward():
    graph = FlowBuilder(nn.LazyLinear(2)).build()
    graph(X)
    assert graph.structural_hash == FlowBuilder(nn.Linear(4, 2)).build().structural_hash


def test_tensors_die_with_their_last_use():
    import weakref

    seen = []

    def first(x):
        result = x + 1
        seen.append(weakref.ref(result))
        return result

    def third(x):
        seen.append(seen[0]() is None)
        return x

    graph = FlowBuilder(first).through(lambda x: x * 2).through(third).build()
    with torch.no_grad():
        graph(X)
    assert seen[1] is True


def test_data_parallel_wrapper_on_one_process(tmp_path):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        graph, plain = build(), build()
        wrapped = DistributedDataParallel(graph)
        torch.manual_seed(1)
        wrapped(X).sum().backward()
        torch.manual_seed(1)
        plain(X).sum().backward()
        ours = {name: p.grad for name, p in graph.named_parameters()}
        assert all(torch.equal(ours[name], p.grad) for name, p in plain.named_parameters())
    finally:
        dist.destroy_process_group()
