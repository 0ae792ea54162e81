from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.data import Batch, ResidentBudget, TensorDataSet, budget, prefetch

DATA = TensorDataSet(torch.zeros(100, 8), torch.zeros(100, dtype=torch.int64))


def model() -> nn.Module:
    return nn.Linear(8, 4)


PARAMS = 4 * (8 * 4 + 4)


@pytest.mark.parametrize(
    ("name", "options", "copies"),
    [
        ("SGD", {}, 0),
        ("SGD", {"momentum": 0.9}, 1),
        ("Adam", {}, 2),
        ("AdamW", {"amsgrad": True}, 3),
        ("RAdam", {}, 2),
        ("NAdam", {}, 2),
        ("RMSprop", {}, 1),
        ("RMSprop", {"momentum": 0.9, "centered": True}, 3),
        ("Adagrad", {}, 1),
    ],
)
def test_optimizer_state_is_so_many_copies_of_what_is_trained(
    name: str, options: dict[str, Any], copies: int
) -> None:
    net = model()
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.1, **options)
    found = ResidentBudget.estimate(DATA, net, optimizer, batch_size=10)
    assert found.optimizer_bytes == copies * PARAMS
    net(torch.zeros(2, 8)).sum().backward()
    optimizer.step()
    held = sum(
        tensor.nbytes
        for state in optimizer.state.values()
        for tensor in state.values()
        if isinstance(tensor, torch.Tensor) and tensor.dim()
    )
    assert held == found.optimizer_bytes


def test_the_parts_add_up_and_frozen_parameters_have_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "host_memory", lambda: (100, 10_000))
    net = model()
    next(iter(net.parameters())).requires_grad_(False)
    found = ResidentBudget.estimate(DATA, net, torch.optim.Adam(net.parameters()), batch_size=10)
    assert found.data_bytes == 100 * 40
    assert (found.param_bytes, found.grad_bytes, found.optimizer_bytes) == (PARAMS, 16, 32)
    assert found.activation_estimate == 32 * 400
    assert found.overhead_bytes == 0
    assert found.total_bytes == 4000 + PARAMS + 16 + 32 + 12_800
    assert found.available_bytes == 9900
    assert found.headroom_bytes == 9900 - found.total_bytes
    assert not found.fits
    assert ResidentBudget.estimate(4000, net, None, batch_size=10).fits


def test_the_table_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "host_memory", lambda: (0, 2048))
    lines = str(ResidentBudget.estimate(4096, model(), None, batch_size=1)).splitlines()
    assert lines[0] == "data                          4 KB"
    assert lines[4].startswith("activations (estimated)")
    assert lines[-1] == "headroom                     -2 KB"
    assert len({len(line) for line in lines}) == 1


def test_unknown_optimizers_and_measuring_on_the_cpu_are_refused() -> None:
    net = model()
    with pytest.raises(ConfigError, match="optimizer Adadelta: how much state it keeps"):
        ResidentBudget.estimate(DATA, net, torch.optim.Adadelta(net.parameters()), batch_size=1)
    found = ResidentBudget.estimate(DATA, net, None, batch_size=1)
    with pytest.raises(ConfigError, match="measure on cpu: only a GPU"):
        found.measure(lambda batch: None, Batch([torch.zeros(1, 8)]))


@pytest.mark.cuda
def test_a_measured_step_replaces_the_guess() -> None:
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 8)).cuda()
    found = ResidentBudget.estimate(DATA, net, None, batch_size=512, device="cuda")
    assert found.available_bytes > 0
    batch = Batch([torch.randn(512, 1024, device="cuda")])
    measured = found.measure(lambda b: net(b[0]).sum().backward(), batch)
    assert measured.is_measured
    assert measured.activation_estimate >= 512 * 4096 * 4
    assert "activations (measured)" in str(measured)
    assert prefetch.usable_bytes(budget.gpu_memory_info(torch.device("cuda", 0))) > 0
