"""What several ranks compute together is what one process computes on all their batches."""

import pytest
import torch
import torch._dynamo
from torch import nn

from flodl.data import TensorDataSet
from flodl.distributed.averaging.outer import DiLoCo, SlowMo
from flodl.distributed.config import ElCheConfig
from flodl.testing.sim import Fault, run_threads

SAMPLES, BATCH = 96, 4


def data():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(SAMPLES, 5, generator=generator)
    return TensorDataSet(x=x, y=x.sum(1, keepdim=True))


def model(device):
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))


def loss(net, batch):
    return (net(batch["x"]) - batch["y"]).square().mean()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def together(ranks, batch, optimizer, elche, **options):
    return run_threads(
        ranks,
        model,
        optimizer,
        loss,
        data(),
        batch_size=batch,
        num_epochs=3,
        elche=elche,
        **options,
    )


def order_of_all(ranks):
    """The order in which one process takes what the ranks take in each step together."""
    slices = torch.arange(SAMPLES).chunk(ranks)
    return [torch.cat(parts) for parts in zip(*(s.split(BATCH) for s in slices), strict=True)]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_gradient_mode_is_one_process_with_the_concatenated_batch(name, ranks):
    elche = ElCheConfig.nccl_sync(collective="gloo")
    options = {"loader": {"shuffle": False}}
    result = together(ranks, BATCH, OPTIMIZERS[name], elche, options=options)

    from flodl.core.seeding import derive_seed, manual_seed

    manual_seed(derive_seed(42, 0, "weights"))
    alone = model("cpu")
    optimizer = OPTIMIZERS[name](alone.parameters())
    x, y = _tensors()
    for _ in range(3):
        for step in order_of_all(ranks):
            optimizer.zero_grad()
            (alone(x[step]) - y[step]).square().mean().backward()
            optimizer.step()
    for key, value in alone.state_dict().items():
        assert torch.allclose(result.state[key], value, atol=1e-6, rtol=1e-5), key


def _tensors():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(SAMPLES, 5, generator=generator)
    return x, x.sum(1, keepdim=True)


@pytest.mark.parametrize("mode", ["cpu_sync", "cpu_cadence", "gloo_cadence"])
@pytest.mark.parametrize("outer", [None, DiLoCo(), SlowMo()])
def test_all_ranks_end_with_the_same_bits(mode, outer):
    elche = {
        "cpu_sync": ElCheConfig.cpu_sync(),
        "cpu_cadence": ElCheConfig.cpu_cadence(anchor=2),
        "gloo_cadence": ElCheConfig.nccl_cadence(collective="gloo", anchor=2),
    }[mode]
    result = together(3, BATCH, OPTIMIZERS["sgd"], elche, options={"outer": outer})
    first, *others = result.models.values()
    for other in others:
        assert all(torch.equal(first[key], other[key]) for key in first)
    assert all(torch.equal(first[key], result.state[key]) for key in first)


def test_half_precision_on_the_wire_learns_as_well():
    plain, short = (
        together(
            2,
            BATCH,
            OPTIMIZERS["sgd"],
            ElCheConfig.cpu_cadence(anchor=2, deterministic="schedule", bf16_wire=on_wire),
        )
        for on_wire in (False, True)
    )
    assert short.metrics[-1].avg_loss < 1.2 * plain.metrics[-1].avg_loss + 1e-3


def test_a_rank_whose_loss_is_not_finite_is_left_out_and_counted():
    result = together(
        3,
        BATCH,
        OPTIMIZERS["sgd"],
        ElCheConfig.cpu_cadence(anchor=2),
        faults=[Fault(rank=1, at="step:3", kind="nan")],
    )
    assert result.finish.reason == "done"
    assert all(bool(torch.isfinite(value).all()) for value in result.state.values())
    skipped = [account["skipped_nonfinite"] for account in result.accounting]
    assert sum(skipped) > 0
    for account in result.accounting:
        assert account["committed"] + account["skipped_nonfinite"] == SAMPLES


def test_what_the_user_raises_ends_the_run_with_the_traceback():
    result = together(
        2,
        BATCH,
        OPTIMIZERS["sgd"],
        ElCheConfig.cpu_cadence(),
        faults=[Fault(rank=1, at="step:3", kind="exception")],
    )
    assert result.finish.is_failed
    (error,) = result.finish.errors
    assert error.type_name == "builtins:ValueError"
    assert "injected into the step" in error.traceback
