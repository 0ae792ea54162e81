"""What cannot work on several devices is said, with the reason and a way out."""

import pytest
import torch
from torch import nn

from flodl.core.errors import (
    ConfigError,
    FormationError,
    GraphInputError,
    StepContractError,
)
from flodl.graph import FlowBuilder, LoopBody
from flodl.graph.stepping import NamespaceError


def test_what_is_wrong_is_said(fakes, small, monkeypatch):
    graph = fakes(2, loader=None)
    with pytest.raises(StepContractError, match="no parameter has a gradient"):
        graph.step()
    graph(small.x).mean().backward()
    graph.step()
    with pytest.raises(StepContractError, match="no parameter has a gradient"):
        graph.step()
    with pytest.raises(StepContractError, match="distributed already"):
        graph.distribute(small.build)
    with pytest.raises(StepContractError, match=r"epoch\(0\): there is no data"):
        graph.epoch(0)
    with pytest.raises(GraphInputError, match="input with rows"):
        graph(torch.tensor(1.0))
    graph = small.build()
    graph.distribute(small.build)
    graph(small.x).mean().backward()
    with pytest.raises(StepContractError, match="no optimizer"):
        graph.step()
    graph = small.build()
    graph.set_optimizer(small.sgd)
    with pytest.raises(StepContractError, match="set up already\nhint: call distribute"):
        graph.distribute(small.build)
    loader = small.loader()
    loader.partition(0, 2)
    graph = fakes(2, loader=None)
    with pytest.raises(ConfigError, match="one rank's part"):
        graph.set_data_loader(loader, "x")
    monkeypatch.setenv("FLODL_FAKE_DEVICES", "many")
    with pytest.raises(ConfigError, match="FLODL_FAKE_DEVICES='many'"):
        small.build().distribute(small.build)


def test_replicas_that_are_no_copies_are_refused(small, monkeypatch):
    monkeypatch.setenv("FLODL_FAKE_DEVICES", "2")
    graph = small.build()
    with pytest.raises(ConfigError, match="replica 1 shares parameters"):
        graph.distribute(lambda device: graph)
    with pytest.raises(ConfigError, match="gave a Linear for cpu"):
        graph.distribute(lambda device: nn.Linear(4, 1))
    with pytest.raises(FormationError, match="graph of rank 1 has the hash"):
        graph.distribute(lambda device: small.build(device, width=5))
    graph.distribute(small.build)
    assert graph.world_size == 2


def test_a_parameter_exchanged_for_another_is_noticed(fakes, small):
    graph = fakes(2, loader=None)
    target = next(name for name, one in graph.named_modules() if isinstance(one, nn.Linear))
    graph.set_submodule(target, nn.Linear(4, 8))
    with pytest.raises(StepContractError, match="others than when it was distributed"):
        graph(small.x)


def test_a_graph_that_was_moved_or_has_no_shapes_yet_is_refused(fakes, small, monkeypatch):
    graph = fakes(2, loader=None)
    graph.to("meta")
    with pytest.raises(StepContractError, match="moved from cpu since"):
        graph(small.x)
    lazy = FlowBuilder(nn.LazyLinear(3)).build()
    with pytest.raises(ConfigError, match="without a shape yet: .*weight"):
        lazy.distribute(lambda device: lazy)


def test_a_name_that_means_two_things_is_refused_before_training(monkeypatch):
    class Named(LoopBody):
        emits = ("size",)

        def step(self, x, refs, emit):
            emit.publish("size", x)
            return x

    monkeypatch.setenv("FLODL_FAKE_DEVICES", "2")
    flow = FlowBuilder(nn.Linear(2, 2)).tag("size").loop_body(Named()).for_n(2)
    with pytest.raises(NamespaceError, match="'size'"):
        flow.build().distribute(lambda device: None)


def test_sparse_gradients_are_refused(fakes):
    def make(device="cpu"):
        torch.manual_seed(0)
        return FlowBuilder(nn.Embedding(5, 2, sparse=True)).build()

    graph = fakes(2, make=make, loader=None)
    graph(torch.tensor([0, 1, 2, 3])).mean().backward()
    with pytest.raises(ConfigError, match="is sparse"):
        graph.step()
