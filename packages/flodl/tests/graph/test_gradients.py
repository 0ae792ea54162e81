"""Gradients of every graph construct against finite differences, and what 2000 steps leave."""

import gc
import resource

import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder
from flodl.nn import FixedSelector, SigmoidRouter, SoftmaxRouter, StateAdd


def layer(inputs=4, outputs=4):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh())


def split(merge, **options):
    return lambda: FlowBuilder().split([layer(), layer(), layer()]).merge(merge, **options)


GRAPHS = {
    "through": lambda: FlowBuilder(layer()).through(layer()),
    "also": lambda: FlowBuilder(layer()).also(layer()),
    "also_with": lambda: FlowBuilder(layer()).also_with(layer(), layer()),
    "fork": lambda: (
        FlowBuilder(layer()).fork(layer()).tag("side").through(StateAdd()).using("side")
    ),
    "using": lambda: (
        FlowBuilder(layer()).tag("early").through(layer()).through(StateAdd()).using("early")
    ),
    "merge add": split("add"),
    "merge mean": split("mean"),
    "merge mul": split("mul"),
    "merge max": split("max"),
    "merge cat": split("cat", dim=-1),
    "merge stack": split("stack", dim=1),
    "gate softmax": lambda: FlowBuilder().gate(SoftmaxRouter(4, 3), [layer() for _ in range(3)]),
    "gate sigmoid": lambda: FlowBuilder().gate(SigmoidRouter(4, 2), [layer(), layer()]),
    "switch 0": lambda: FlowBuilder().switch(FixedSelector(0), [layer(), layer()]),
    "switch 1": lambda: FlowBuilder().switch(FixedSelector(1), [layer(), layer()]),
    "switch dense": lambda: FlowBuilder().switch(lambda x: 1, [layer(), layer()]),
    "loop": lambda: FlowBuilder(layer()).loop_body(layer()).for_n(3),
    "loop until": lambda: FlowBuilder(layer()).loop_body(layer()).until_cond(lambda x: -x, 2),
    "map each": lambda: FlowBuilder().map(layer()).each(),
    "map batched": lambda: FlowBuilder().map(layer()).batched().each(),
    "map slices": lambda: FlowBuilder().map(layer(2, 2)).slices(2),
    "map over": lambda: FlowBuilder(layer()).tag("rows").map(layer()).over("rows"),
}


def inputs_of(graph):
    """Return input and parameters as leaves, and the graph as a function of them."""
    names = [name for name, _ in graph.named_parameters()]
    leaves = [torch.randn(2, 4, dtype=torch.float64, requires_grad=True)]
    leaves += [p.detach().clone().requires_grad_() for p in graph.parameters()]

    def run(x, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(graph, parameters, (x,))

    return run, leaves


@pytest.mark.parametrize("name", GRAPHS)
def test_gradients_are_those_of_finite_differences(name):
    torch.manual_seed(0)
    run, leaves = inputs_of(GRAPHS[name]().build().double())
    assert torch.autograd.gradcheck(run, leaves, eps=1e-6, atol=1e-6)


def test_gradients_reach_back_through_two_calls_with_a_forward_reference():
    torch.manual_seed(0)
    graph = (
        FlowBuilder(layer()).through(StateAdd()).using("memory").through(layer()).tag("memory")
    ).build()
    run, leaves = inputs_of(graph.double())

    def two_calls(*values):
        graph.reset()
        first = run(*values)
        return first, run(*values)

    assert torch.autograd.gradcheck(two_calls, leaves, eps=1e-6, atol=1e-6)
    first, second = two_calls(*leaves)
    assert not torch.equal(first, second)


@pytest.mark.slow
def test_two_thousand_steps_leave_no_tensors_and_no_memory_behind():
    torch.manual_seed(0)
    graph = (
        FlowBuilder(layer())
        .through(StateAdd())
        .using("memory")
        .loop_body(layer())
        .for_n(3)
        .tag("memory")
        .build()
    )
    optimizer = torch.optim.Adam(graph.parameters(), lr=1e-3)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            graph(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            graph.detach_state()
        gc.collect()
        # By type: isinstance would ask proxies what they stand for.
        alive = sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())
        return alive, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    tensors, kilobytes = train(200)
    later = train(2000)
    assert later[0] <= tensors
    assert later[1] - kilobytes < 8 * 1024
