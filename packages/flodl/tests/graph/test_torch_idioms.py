"""What people do with modules, done with graphs: nothing here knows that they are graphs."""

import copy
import io
import pickle
import warnings
from multiprocessing import resource_sharer

import pytest
import torch
import torch.multiprocessing
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.utils.checkpoint import checkpoint

from flodl.graph import FlowBuilder, LoopBody
from flodl.nn import ArgmaxSelector, FixedSelector, SoftmaxRouter, StateAdd

# The compiler looks at the gradients of values that have none.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def linear():
    return nn.Linear(4, 4)


def model():
    torch.manual_seed(0)
    flow = FlowBuilder(linear()).tag("a").gate(SoftmaxRouter(4, 2), [linear(), linear()]).tag("g")
    flow = flow.loop_body(linear()).for_n(2).tag("l").map(nn.Linear(2, 2)).slices(2)
    return flow.also(nn.Sequential(linear(), nn.GELU())).tag("r").build()


def remembering():
    return FlowBuilder(linear()).through(StateAdd()).using("m").tag("m").build()


def grads_of(loss, graph):
    return torch.autograd.grad(loss, list(graph.parameters()))


# ---------------------------------------------------------------- torch.func


def test_functional_call_uses_the_parameters_it_is_given():
    graph = model()
    moved = {name: value + 1 for name, value in graph.named_parameters()}
    out = torch.func.functional_call(graph, moved, (X,))
    other = copy.deepcopy(graph)
    other.load_state_dict(moved)
    assert torch.equal(out, other(X))


def test_ensembles_run_through_vmap():
    graphs = [model() for _ in range(3)]
    for graph in graphs[1:]:
        graph.apply(lambda module: isinstance(module, nn.Linear) and module.reset_parameters())
    parameters, buffers = torch.func.stack_module_state(graphs)
    base = copy.deepcopy(graphs[0]).to("meta")

    def call(parameters, buffers, x):
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    outputs = torch.vmap(call, in_dims=(0, 0, None))(parameters, buffers, X)
    assert all(
        torch.allclose(out, graph(X), atol=1e-6) for out, graph in zip(outputs, graphs, strict=True)
    )


def test_gradients_for_each_sample_add_up():
    graph = model()
    parameters = dict(graph.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(graph, parameters, (x[None],)).square().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, X)
    graph(X).square().sum().backward()
    for name, parameter in graph.named_parameters():
        assert torch.allclose(each[name].sum(0), parameter.grad, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # torch's own forward mode uses it
def test_jacobians_agree_and_leave_the_graph_usable():
    graph = model()
    row = lambda x: graph(x[None])[0]  # noqa: E731
    backward, forward = torch.func.jacrev(row)(X[0]), torch.func.jacfwd(row)(X[0])
    assert torch.allclose(backward, forward, atol=1e-5)
    assert torch.allclose(backward, torch.autograd.functional.jacobian(row, X[0]), atol=1e-5)
    torch.func.hessian(lambda x: row(x).sum())(X[0])
    # What is kept of those calls belongs to transforms that have ended.
    graph.end_step()
    copied = pickle.loads(pickle.dumps(copy.deepcopy(graph)))
    assert torch.equal(copied(X), graph(X))


# ---------------------------------------------------------------- weights


def test_parametrizations_and_norms_of_weights():
    class Symmetric(nn.Module):
        def forward(self, weight):
            return weight.triu() + weight.triu(1).T

    graph = model()
    before = graph.structural_hash
    parametrize.register_parametrization(graph.a, "weight", Symmetric())
    nn.utils.parametrizations.weight_norm(graph.l.body)
    nn.utils.parametrizations.spectral_norm(graph.g.experts.get_submodule("0"))
    out = graph.eval()(X)
    assert torch.equal(graph.a.weight, graph.a.weight.T)
    assert torch.equal(copy.deepcopy(graph)(X), out)
    assert graph.structural_hash != before
    assert graph.summary(X).rows
    parametrize.remove_parametrizations(graph.a, "weight")
    assert torch.allclose(graph(X), out, atol=1e-6)


def test_pruned_tied_flattened_and_clipped_weights():
    graph = model()
    prune.l1_unstructured(graph.a, "weight", 0.5)
    graph(X).sum().backward()
    nn.utils.clip_grad_norm_(graph.parameters(), 0.1)
    prune.remove(graph.a, "weight")
    flat = nn.utils.parameters_to_vector(graph.parameters())
    nn.utils.vector_to_parameters(0 * flat, graph.parameters())
    assert not graph(X).any()
    table, head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    head.weight = table.weight
    tied = FlowBuilder(table).tag("table").through(head).tag("head").build()
    for again in (tied, copy.deepcopy(tied), pickle.loads(pickle.dumps(tied))):
        assert len(list(again.parameters())) == 1
        assert again.table.weight is again.head.weight


def test_layers_built_on_meta_get_their_weights_later():
    source = model()
    with torch.device("meta"):
        assigned, empty = model(), model()
        assert assigned(torch.empty(3, 4)).is_meta
    assigned.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(assigned(X), source(X))
    empty.to_empty(device="cpu").load_state_dict(source.state_dict())
    assert torch.equal(empty(X), source(X))


def test_state_dict_hooks_and_partial_loads():
    graph = model()
    graph.register_state_dict_post_hook(
        lambda module, state, prefix, meta: state.update({f"{prefix}extra": torch.ones(1)})
    )
    state = graph.state_dict()
    assert "extra" in state
    found = graph.load_state_dict({"a.weight": torch.ones(4, 4), "b": X}, strict=False)
    assert "a.bias" in found.missing_keys
    assert found.unexpected_keys == ["b"]


# ---------------------------------------------------------------- layers swapped


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, 1), nn.Linear(1, base.out_features)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_adapters_set_as_attributes_of_whatever_holds_a_layer():
    graph = model()
    expected, version, before = graph(X), graph.version, graph.structural_hash
    for name, module in list(graph.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, leaf = name.rpartition(".")
            setattr(graph.get_submodule(parent), leaf, Adapter(module))
    assert torch.equal(graph(X), expected)
    assert graph.structural_hash != before
    assert graph.version > version
    for name, parameter in graph.named_parameters():
        parameter.requires_grad_(".up." in name)
    graph(X).sum().backward()
    assert graph.a.up.weight.grad.any()
    assert graph.get_parameter("l.body.up.weight").grad.any()
    assert torch.equal(copy.deepcopy(graph)(X), expected)


def test_code_follows_modules_that_change_what_a_construct_does():
    class Doubling(LoopBody):
        emits = ("size",)

        def step(self, x, refs, emit):
            emit.publish("size", x.norm())
            return 2 * x

    flow = FlowBuilder().loop_body(nn.Tanh(), key="loop").for_n(2)
    graph = flow.switch(FixedSelector(0), [nn.Identity(), nn.ReLU()], key="way").build()
    copied, pickled = copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))
    for one in (graph, copied, pickled):
        one.loop.body = Doubling()
        one.way.router = FixedSelector(1)
        assert torch.equal(one(X), 4 * X.relu())
        assert len(one.traces("size")) == 2
        one.loop.body = nn.Identity()
        one.way.branches.add_module("1", nn.Tanh())
        assert torch.equal(one(X), X.tanh())
    assert torch.equal(graph(X), X.tanh())


def test_a_layer_deep_inside_a_step_changes_the_hash():
    graph = model()
    before = graph.structural_hash
    graph.r[1] = nn.Tanh()
    assert graph.structural_hash != before


def test_batch_norm_conversion_and_fusion():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    flow = FlowBuilder(nn.Conv2d(3, 4, 3)).tag("c").through(nn.BatchNorm2d(4)).tag("b")
    graph = flow.loop_body(nn.BatchNorm2d(4)).for_n(2).build().eval()
    expected = graph(x)
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(graph))
    assert torch.allclose(synced(x), expected)
    graph.c = nn.utils.fusion.fuse_conv_bn_eval(graph.c, graph.b)
    graph.b = nn.Identity()
    assert torch.allclose(graph(x), expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_dynamic_quantization_replaces_layers():
    graph = model().eval()
    quantized = torch.ao.quantization.quantize_dynamic(graph, {nn.Linear}, dtype=torch.qint8)
    assert (quantized(X) - graph(X)).abs().max() < 0.2
    assert type(quantized.a) is not nn.Linear
    assert type(quantized.l.body) is not nn.Linear


def test_a_patched_forward_is_called():
    graph = model()
    expected, whole, layer = graph(X), graph.forward, graph.a.forward
    graph.forward = lambda *args, **kwargs: whole(*args, **kwargs) + 1
    assert torch.equal(graph(X), expected + 1)
    graph.a.forward = lambda x: 0 * layer(x)
    assert not torch.equal(graph(X), expected + 1)


# ---------------------------------------------------------------- calls


def test_hooks_of_every_kind():
    graph, seen = model(), []
    graph.register_forward_pre_hook(lambda module, args: (2 * args[0],))
    graph.register_forward_hook(lambda module, args, out: out + 1)
    graph.register_full_backward_hook(lambda *args: seen.append("graph"))
    graph.a.register_full_backward_hook(lambda *args: seen.append("node"))
    for parameter in graph.parameters():
        parameter.register_post_accumulate_grad_hook(lambda value: seen.append("parameter"))
    plain = model()
    out = graph(X.clone().requires_grad_())
    assert torch.equal(out, plain(2 * X) + 1)
    out.sum().backward()
    assert seen.count("parameter") == len(list(graph.parameters()))
    assert {"graph", "node"} <= set(seen)


def test_checkpoints_of_a_graph_and_of_a_graph_with_state():
    graph, x = model(), X.clone().requires_grad_()
    plain = grads_of(graph(x).sum(), graph)
    again = grads_of(checkpoint(graph, x, use_reentrant=False).sum(), graph)
    assert all(map(torch.allclose, plain, again))
    checkpoint(graph, x, use_reentrant=True).sum().backward()


def test_autocast_precisions_and_memory_formats():
    graph = model()
    with torch.autocast("cpu", torch.bfloat16):
        out = graph(X)
    assert out.dtype is torch.bfloat16
    out.float().sum().backward()
    assert graph.a.weight.grad.dtype is torch.float32
    assert graph.to(torch.float64)(X.double()).dtype is torch.float64
    image = FlowBuilder(nn.Conv2d(3, 4, 3)).through(nn.BatchNorm2d(4), nn.ReLU()).build()
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    out = image.to(memory_format=torch.channels_last)(x)
    assert out.is_contiguous(memory_format=torch.channels_last)
    state = remembering()
    state(X)
    assert state.half()(X.half()).dtype is torch.float16


def test_state_of_an_inference_call_can_be_reset_and_trained_on():
    graph = remembering()
    with torch.inference_mode():
        graph(X)
    graph.end_step()
    graph(X).sum().backward()
    graph.reset_state()
    graph(X).sum().backward()


def test_optimizers_with_a_group_for_each_path():
    inner = FlowBuilder(linear()).tag("w").label("encoder").build()
    graph = FlowBuilder(inner).through(linear()).tag("head").build()
    groups = graph.trainable_groups({"encoder": {"lr": 0.0}, "head": {"lr": 0.1}})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    before = {name: value.clone() for name, value in graph.named_parameters()}
    graph(X).square().sum().backward()
    optimizer.step()
    moved = {name for name, value in graph.named_parameters() if not value.equal(before[name])}
    assert moved == {"head.weight", "head.bias"}


# ---------------------------------------------------------------- elsewhere


@pytest.mark.multiproc
def test_a_graph_runs_in_a_spawned_process():
    graph = model().requires_grad_(False)
    expected = graph(X)
    with torch.multiprocessing.get_context("spawn").Pool(1) as pool:
        assert torch.allclose(pool.apply_async(graph, (X,)).get(timeout=120), expected)
    resource_sharer.stop(timeout=10)


def test_one_compiled_node_and_a_compiled_training_step():
    torch._dynamo.reset()
    graph = model()
    expected = graph(X)
    graph.a = torch.compile(graph.a, backend="aot_eager")
    graph.l.body.compile(backend="aot_eager")
    assert torch.allclose(graph(X), expected, atol=1e-6)
    whole, state = model(), remembering()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss_of(x):
        return whole(x).square().sum() + state(x).square().sum()

    optimizer = torch.optim.SGD(whole.parameters(), 0.01)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = loss_of(X)
        loss.backward()
        optimizer.step()
        state.end_step()
        losses.append(loss.item())
    assert len(set(losses)) == 4


@pytest.mark.parametrize("mode", ["auto", "cond"])
def test_a_switch_compiles_with_breaks_or_as_an_operator(mode):
    torch._dynamo.reset()
    graph = FlowBuilder(linear()).switch(ArgmaxSelector(4, 2), [linear(), linear()], mode=mode)
    graph = graph.through(linear()).build()
    compiled = torch.compile(graph, fullgraph=mode == "cond", backend="aot_eager")
    assert torch.allclose(compiled(X), graph(X), atol=1e-6)


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
@pytest.mark.parametrize("strict", [True, False])
def test_torch_export_takes_a_graph_as_it_is(strict):
    graph = model()
    program = torch.export.export(graph, (X,), strict=strict).module()
    assert torch.allclose(program(X), graph(X), atol=1e-6)
    flow = FlowBuilder(linear()).input("ctx").through(StateAdd()).using("ctx").build()
    program = torch.export.export(flow, (X,), {"ctx": X}).module()
    assert torch.equal(program(X, ctx=X), flow(X, X))


def test_traced_saved_and_reloaded():
    graph = model().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(graph, X)
    assert torch.allclose(traced(X), graph(X))
    stream = io.BytesIO()
    torch.save(graph.state_dict(), stream)
    stream.seek(0)
    fresh = model()
    fresh.load_state_dict(torch.load(stream))
    assert torch.equal(fresh(X), graph(X))


def test_inside_other_containers():
    outer = nn.Sequential(model(), nn.ReLU(), nn.ModuleDict({"x": model()})["x"])
    outer.apply(lambda module: isinstance(module, nn.Linear) and nn.init.zeros_(module.weight))
    copied = copy.deepcopy(outer)
    assert torch.equal(copied(X), outer(X))
    outer[0].register_buffer("steps", torch.zeros(()))
    outer[0].extra = linear()
    assert {"0.steps", "0.extra.weight"} <= set(outer.state_dict())
    outer(X).sum().backward()
