"""A graph with every construct, used wherever torch takes a module."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim.swa_utils import AveragedModel

from flodl.graph import FlowBuilder, LoopBody
from flodl.nn import (
    ArgmaxSelector,
    FixedSelector,
    LearnedHalt,
    SoftmaxRouter,
    StateAdd,
    ThresholdHalt,
)

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Body(LoopBody):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def step(self, x, refs, emit):
        emit.publish("size", x.norm())
        return torch.tanh(self.layer(x))


def everything():
    torch.manual_seed(0)
    pair = lambda: [nn.Linear(4, 4), nn.Linear(4, 4)]  # noqa: E731
    inner = FlowBuilder(nn.Linear(4, 4)).through(StateAdd()).using("m").tag("m").label("inner")
    flow = FlowBuilder(nn.Linear(4, 4)).tag("a").input("aux").through(inner.build())
    flow = flow.also(nn.Linear(4, 4)).loop_body(Body()).for_n(2, trace=True).tag("loop")
    flow = flow.loop_body(nn.Tanh()).while_cond(ThresholdHalt(0.3), 3)
    flow = flow.loop_body(nn.Tanh()).until_cond(LearnedHalt(4), 3, mode="act")
    flow = flow.gate(SoftmaxRouter(4, 2), pair(), key="gate").switch(FixedSelector(1), pair())
    flow = flow.switch(ArgmaxSelector(4, 2), pair(), mode="dense")
    flow = flow.map(nn.Linear(2, 2), key="rows").batched().slices(2)
    return flow.through(StateAdd()).using("later").tag("later").build()


def same(one, two):
    return torch.equal(one(X, None), two(X, None))


def ran():
    graph = everything()
    graph(X, aux=None).sum().backward()
    return graph


@pytest.mark.parametrize("again", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copy_after_a_call_goes_on_where_it_was(again):
    graph = ran()
    graph.enable_profiling()
    copied = again(graph)
    assert not copied.get_state()["later"].requires_grad
    assert copied.traces("size") is None
    assert same(graph, copied)
    assert copied.code == graph.code


def test_saved_whole_by_torch():
    graph, stream = ran(), io.BytesIO()
    torch.save(graph, stream)
    stream.seek(0)
    assert same(graph, torch.load(stream, weights_only=False))


def test_averaged_model_and_state_dict():
    graph = ran()
    averaged = AveragedModel(graph)
    averaged.update_parameters(graph)
    assert same(averaged.module, graph)
    fresh = everything()
    fresh.load_state_dict(graph.state_dict())
    graph.reset_state()
    assert same(fresh, graph)


def test_hooks_run_in_every_construct():
    graph, seen = everything(), []
    for name, module in graph.named_modules():
        if isinstance(module, nn.Linear | Body):
            module.register_forward_hook(lambda m, i, o, name=name: seen.append(name))
    graph(X, None)
    expected = {"a", "loop.body", "gate.router.proj", "gate.experts.0", "rows.body"}
    assert expected <= set(seen)


def test_layer_swapped_in_is_used():
    class LowRank(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.down, self.up = base, nn.Linear(4, 1), nn.Linear(1, 4)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    graph, version = everything(), 0
    for path in ("a", "gate.experts.0", "loop.body.layer", "inner.linear_1"):
        version, before = graph.version, graph(X, None)
        graph.set_submodule(path, LowRank(graph.get_submodule(path)))
        graph.reset_state()
        assert not torch.equal(graph(X, None), before)
        assert graph.version > version
        graph.reset_state()


def test_meta_and_half():
    graph = ran()
    assert graph.bfloat16()(X.bfloat16(), None).dtype is torch.bfloat16
    static = FlowBuilder(nn.Linear(4, 4)).through(StateAdd()).using("m").tag("m").build()
    static(X)
    assert static.to("meta")(X.to("meta")).is_meta


@pytest.fixture
def one_rank(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.multiproc
@pytest.mark.filterwarnings("ignore")
def test_distributed_data_parallel_on_gloo(one_rank):
    graph = everything()
    wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(graph), find_unused_parameters=True)
    wrapped(X, None).sum().backward()
    graph(X, None).sum().backward()
    for ours, theirs in zip(wrapped.module.parameters(), graph.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None) or not ours.grad.any()
        assert theirs.grad is None or torch.equal(ours.grad, theirs.grad)


@pytest.mark.multiproc
@pytest.mark.filterwarnings("ignore")
def test_fully_sharded_on_gloo(one_rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    graph = everything()
    expected = graph(X, None)
    sharded = copy.deepcopy(graph)
    sharded.reset_state()
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(sharded.get_submodule("loop.body"), mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    out = sharded(X, None)
    assert torch.allclose(out, expected, atol=1e-6)
    out.sum().backward()
