"""One call before a graph's own loop, whatever devices there are."""

import pytest
import torch
from torch import nn

import flodl
from flodl import Ddp, DdpConfig, FlowBuilder, HasGraph, Trainer
from flodl.core.errors import ConfigError, StepContractError

X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))


def build(device="cpu"):
    torch.manual_seed(0)
    return FlowBuilder(nn.Linear(2, 4)).tag("hidden").through(nn.Linear(4, 1)).build().to(device)


def sgd(params):
    return torch.optim.SGD(params, lr=0.1)


class Head(nn.Module):
    """A head as those of transformers are: the graph is its only part."""

    def __init__(self):
        super().__init__()
        self.graph = build()

    def forward(self, x):
        return self.graph(x).squeeze(1)


@pytest.fixture
def fakes(monkeypatch):
    return lambda count: monkeypatch.setenv("FLODL_FAKE_DEVICES", str(count))


def losses(model, steps=4, graph=None):
    found = []
    for _ in range(steps):
        loss = model(X).square().mean()
        loss.backward()
        (graph or model).step()
        found.append(loss.item())
    return found


def test_the_same_loop_runs_on_one_device_and_on_two(fakes, capsys):
    found = {}
    for count in (1, 2):
        fakes(count)
        model = build().eval()
        Trainer.setup(model, build, sgd)
        assert model.training
        assert (model.world_size, model.is_distributed) == (count, count > 1)
        assert not model.has_el_che
        found[count] = losses(model)
    assert found[2] == pytest.approx(found[1], rel=1e-5)
    assert capsys.readouterr().err == "ddp: replicas on the CPU: 1\nddp: replicas on the CPU: 2\n"


def test_without_gpus_there_is_one_device_and_no_replica(capsys, monkeypatch):
    monkeypatch.delenv("FLODL_FAKE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("flodl.distributed.replica.spreading.detect_gpus", list)
    model = build()
    Trainer.setup(model, lambda device: pytest.fail("there is one device"), sgd)
    assert model.world_size == 1
    assert capsys.readouterr().err == "ddp: no CUDA available | CPU mode\n"
    assert losses(model)[-1] < losses(build_with(sgd))[0]


def build_with(optimizer):
    model = build()
    model.set_optimizer(optimizer)
    return model


@pytest.mark.parametrize(
    ("config", "is_on"),
    [
        (DdpConfig(), False),
        (DdpConfig(max_anchor=0), False),
        (DdpConfig(max_anchor=3), True),
        (DdpConfig(speed_hint=(1, 2.0)), True),
        (DdpConfig(speed_hint=(1, 2.0), max_anchor=0), False),
    ],
)
def test_el_che_is_on_where_it_is_asked_for(fakes, config, is_on):
    fakes(2)
    model = build()
    Trainer.setup_with(model, build, sgd, config)
    assert model.has_el_che is is_on


def test_el_che_is_on_where_devices_differ(fakes, monkeypatch):
    monkeypatch.setattr(
        "flodl.distributed.replica.spreading.device_names", lambda devices: ["fast", "slow"]
    )
    fakes(2)
    model = build()
    Trainer.setup(model, build, sgd)
    assert model.has_el_che
    other = build()
    Trainer.setup_with(other, build, sgd, DdpConfig(max_anchor=0))
    assert not other.has_el_che


def test_gradients_are_limited_on_one_device_too(fakes):
    fakes(1)
    model = build()
    Trainer.setup_with(model, build, sgd, DdpConfig(max_grad_norm=1e-6))
    before = [p.detach().clone() for p in model.parameters()]
    losses(model, 1)
    for old, new in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(old, new.detach(), atol=1e-6, rtol=0)


def test_a_head_trains_through_its_graph(fakes):
    found = {}
    for count in (1, 3):
        fakes(count)
        torch.manual_seed(0)
        head, made = Head().eval(), []
        assert isinstance(head, HasGraph)
        Trainer.setup_head(head, lambda device: made.append(device) or Head(), sgd)  # noqa: B023
        assert len(made) == count - 1, "one for each other device"
        assert head.training
        assert head.graph.world_size == count
        found[count] = losses(head, graph=head.graph)
    assert found[3] == pytest.approx(found[1], rel=1e-5)


def test_a_head_takes_settings(fakes):
    fakes(2)
    head = Head()
    Trainer.setup_head_with(head, lambda device: Head(), sgd, DdpConfig(max_anchor=2))
    assert head.graph.has_el_che


def test_what_cannot_be_set_up_is_refused(fakes):
    fakes(2)

    class Wide(Head):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

    with pytest.raises(ConfigError, match="Linear: expected a Graph\nhint: use Trainer.setup_head"):
        Trainer.setup(nn.Linear(1, 1), build, sgd)
    with pytest.raises(ConfigError, match="type Linear has no graph"):
        Trainer.setup_head(nn.Linear(1, 1), build, sgd)
    with pytest.raises(ConfigError, match=r"Wide are not in its graph: scale"):
        Trainer.setup_head(Wide(), lambda device: Wide(), sgd)
    model = build()
    Trainer.setup(model, build, sgd)
    with pytest.raises(StepContractError, match="distributed already"):
        Trainer.setup(model, build, sgd)


def test_old_names_work_and_warn(fakes):
    fakes(2)
    model, other = build(), build()
    with pytest.warns(DeprecationWarning, match=r"Ddp\.setup is now Trainer\.setup") as caught:
        Ddp.setup(model, build, sgd)
    assert caught[0].filename == __file__
    assert model.world_size == 2
    with pytest.warns(DeprecationWarning, match=r"setup_with is now"):
        Ddp.setup_with(other, build, sgd, DdpConfig(max_anchor=2))
    assert other.has_el_che
    with pytest.warns(DeprecationWarning, match=r"Ddp\.builder is now Trainer\.builder"):
        builder = Ddp.builder(lambda device: build(), sgd, lambda model, batch: model(batch[0]))
    assert isinstance(builder, type(Trainer.builder(None, None, None)))


def test_the_bypass_tier_keeps_its_name():
    with Ddp.wrap([nn.Linear(2, 1), nn.Linear(2, 1)], ["cpu", "cpu"]) as ddp:
        assert isinstance(ddp, flodl.Ddp)
        assert ddp.world_size == 2
