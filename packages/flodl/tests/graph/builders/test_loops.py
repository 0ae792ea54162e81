import pytest
import torch
from torch import nn

from flodl.graph import FlowBuilder, FlowError
from flodl.nn import LearnedHalt


def body():
    return FlowBuilder().loop_body(nn.Identity())


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3"])
def test_number_of_iterations_is_one_or_more(n):
    with pytest.raises(FlowError, match=r"the number of iterations must be a whole number"):
        body().for_n(n)
    with pytest.raises(FlowError, match=r"while_cond\(.*1 or more"):
        body().while_cond(torch.neg, n)
    with pytest.raises(FlowError, match=r"detach_every=.*1 or more"):
        body().for_n(3, detach_every=n)


def test_modes_and_options_are_checked():
    with pytest.raises(FlowError, match=r"while_cond\(mode=\): 'act' is none of 'auto', 'hop', 'm"):
        body().while_cond(LearnedHalt(2), 3, mode="act")
    with pytest.raises(FlowError, match=r"until_cond\(mode=\): 'eager' is none of"):
        body().until_cond(LearnedHalt(2), 3, mode="eager")
    with pytest.raises(FlowError, match=r"mode='hop', trace=True\): one operator has no iter"):
        body().until_cond(LearnedHalt(2), 3, mode="hop", trace=True)
    with pytest.raises(FlowError, match=r"reduce=\): 'first' is none of 'all', 'any', 'mean'"):
        body().until_cond(LearnedHalt(2), 3, reduce="first")
    with pytest.raises(FlowError, match="only when masked\nhint: add mode='masked'"):
        body().until_cond(LearnedHalt(2), 3, halt="sample")
    with pytest.raises(FlowError, match=r"eps=1\): it must be between 0 and 1"):
        body().until_cond(LearnedHalt(2), 3, mode="act", eps=1)
    with pytest.raises(FlowError, match="class, not a module"):
        body().until_cond(LearnedHalt, 3)


def test_unfinished_loop_cannot_be_used_as_a_step_or_twice():
    with pytest.raises(FlowError, match="got a LoopBuilder that is not built"):
        FlowBuilder().through(body())
    flow = FlowBuilder()
    loop = flow.loop_body(nn.Identity())
    with pytest.raises(FlowError, match=r"through: .*consumed by \.loop_body\(…\) at .*test_loops"):
        flow.through(nn.Identity())
    loop.for_n(2)
    with pytest.raises(FlowError, match=r"for_n: .*consumed by \.for_n\(…\) at .*test_loops"):
        loop.for_n(2)


def test_loop_needs_a_single_stream_and_a_module():
    with pytest.raises(FlowError, match="loop_body needs a single stream, 2 are open"):
        FlowBuilder().split([nn.Identity(), nn.Identity()]).loop_body(nn.Identity())
    with pytest.raises(FlowError, match="loop_body: Identity is a class"):
        FlowBuilder().loop_body(nn.Identity)


def test_key_names_the_namespace():
    graph = FlowBuilder().loop_body(nn.Linear(2, 2), key="enc.layer").for_n(2).build()
    assert sorted(graph.state_dict()) == ["enc.layer.body.bias", "enc.layer.body.weight"]
