import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError, StepContractError
from flodl.data import Batch
from flodl.engine.config import StepConfig
from flodl.engine.step import TrainStep
from flodl.metrics import ScalarScope


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def stepper(step=mse, config=None, lr=0.1, momentum=0.9):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    scalars = ScalarScope()
    taken = TrainStep(step, model, optimizer, config=config or StepConfig(), scalars=scalars)
    return taken, scalars


def batches(count=5):
    generator = torch.Generator().manual_seed(1)
    return [
        Batch(
            [torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)],
            names=["x", "y"],
        )
        for _ in range(count)
    ]


def hand_written(count, *, value=None, norm=None, rates=None):
    taken, _ = stepper()
    model, optimizer, losses = taken.model, taken.optimizer, []
    for index, batch in enumerate(batches(count)):
        if rates is not None:
            optimizer.param_groups[0]["lr"] = rates[index]
        loss = mse(model, batch)
        optimizer.zero_grad()
        loss.backward()
        if value is not None:
            nn.utils.clip_grad_value_(model.parameters(), value)
        if norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        losses.append(loss.detach())
    return model, losses


class Ramp:
    def lr(self, step):
        return 0.01 * (step + 1)


@pytest.mark.parametrize(
    ("config", "by_hand"),
    [
        (StepConfig(), {}),
        (StepConfig(clip_value=0.05), {"value": 0.05}),
        (StepConfig(max_grad_norm=0.1), {"norm": 0.1}),
        (StepConfig(clip_value=0.05, max_grad_norm=0.1), {"value": 0.05, "norm": 0.1}),
        (StepConfig(scheduler=Ramp()), {"rates": [0.01, 0.02, 0.03, 0.04, 0.05]}),
    ],
    ids=["plain", "value", "norm", "value and norm", "schedule"],
)
def test_steps_equal_a_hand_written_loop_bit_for_bit(config, by_hand):
    taken, _ = stepper(config=config)
    losses = [taken(batch).loss for batch in batches()]
    model, expected = hand_written(5, **by_hand)
    assert all(float(a) == float(b) for a, b in zip(losses, expected, strict=True))
    for ours, theirs in zip(taken.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert taken.global_step == 5


def test_a_tensor_learning_rate_is_written_in_place():
    torch.manual_seed(0)
    rate = torch.tensor(0.5)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, capturable=False)
    taken = TrainStep(mse, model, optimizer, scheduler=Ramp())
    taken(batches(1)[0])
    assert optimizer.param_groups[0]["lr"] is rate
    assert taken.current_lr == pytest.approx(0.01)


def test_every_group_follows_the_schedule():
    first, second = nn.Linear(3, 3), nn.Linear(3, 2)
    model = nn.Sequential(first, second)
    groups = [{"params": first.parameters(), "lr": 1.0}, {"params": second.parameters(), "lr": 2.0}]
    optimizer = torch.optim.SGD(groups)
    TrainStep(mse, model, optimizer, scheduler=Ramp())(batches(1)[0])
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.01]


def test_returned_scalars_join_the_recorded_ones():
    def step(model, batch):
        return mse(model, batch), {"rows": batch.size}

    taken, scalars = stepper(step)
    taken(batches(1)[0])
    assert scalars.means() == {"rows": 8.0}


def test_the_returned_loss_holds_no_graph():
    taken, _ = stepper()
    loss = taken(batches(1)[0]).loss._source
    assert loss.shape == ()
    assert not loss.requires_grad


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda loss: None, "returned NoneType"),
        (lambda loss: loss.item(), "returned float"),
        (lambda loss: loss.detach(), "detached loss"),
        (lambda loss: torch.stack([loss, loss]), r"shape \(2,\)"),
        (lambda loss: (loss,), "tuple of 1"),
        (lambda loss: (loss, loss), "Tensor, Tensor"),
    ],
)
def test_a_result_that_cannot_be_trained_on_says_what_it_was(result, words):
    taken, _ = stepper(lambda model, batch: result(mse(model, batch)))
    before = [p.clone() for p in taken.model.parameters()]
    with pytest.raises(StepContractError, match=words):
        taken(batches(1)[0])
    assert all(torch.equal(a, b) for a, b in zip(before, taken.model.parameters(), strict=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_grad_norm": 0},
        {"clip_value": -1.0},
        {"clip_value": float("nan")},
        {"on_nonfinite": "ignore"},
        {"scheduler": 0.1},
    ],
)
def test_a_setting_out_of_range_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=name):
        StepConfig(**wrong)
