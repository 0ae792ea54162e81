import math

import pytest
import torch
from torch import nn

from flodl.core.errors import NonFiniteError
from flodl.data import DataLoader, TensorDataSet
from flodl.engine.loop import run_epoch
from flodl.engine.step import TrainStep


def stepper(step, policy="raise"):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return TrainStep(step, model, optimizer, on_nonfinite=policy)


def run(step, values, *, batch_size=4, drop_last=False, policy="raise", should_stop=lambda: False):
    data = TensorDataSet(torch.tensor(values, dtype=torch.float32).reshape(-1, 1))
    loader = DataLoader(data, batch_size=batch_size, shuffle=False, drop_last=drop_last)
    return run_epoch(stepper(step, policy), loader, 0, on_nonfinite=policy, should_stop=should_stop)


def mean_of_batch(model, batch):
    return batch[0].mean() + 0 * model(batch[0]).sum()


def test_the_loss_is_the_mean_over_samples_not_over_batches():
    result = run(mean_of_batch, [1, 1, 1, 1, 11])
    assert result.avg_loss == pytest.approx(3.0)
    assert (result.batches, result.samples, result.interrupted) == (2, 5, False)


def test_an_epoch_without_a_batch_has_no_loss():
    result = run(mean_of_batch, [1, 2], batch_size=4, drop_last=True)
    assert math.isnan(result.avg_loss)
    assert result.batches == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_ends_the_epoch_and_names_its_step(bad):
    with pytest.raises(NonFiniteError, match="epoch 0, at or before batch 1"):
        run(mean_of_batch, [1, 1, 1, 1, bad, 1, 1, 1, 1, 1, 1, 1])


def test_the_policy_warn_goes_on_says_so_once_and_reports_nan(caplog):
    result = run(mean_of_batch, [1.0] * 4 + [float("nan")] * 8, policy="warn")
    assert result.batches == 3
    assert math.isnan(result.avg_loss)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_stop_is_honored_after_the_batch_at_hand():
    asked = iter([False, True])
    result = run(mean_of_batch, range(16), should_stop=lambda: next(asked))
    assert (result.batches, result.interrupted) == (2, True)


def test_an_error_in_the_step_keeps_its_type_and_says_where_it_was():
    def step(model, batch):
        if batch[0][0] >= 4:
            raise KeyError("image")
        return mean_of_batch(model, batch)

    with pytest.raises(KeyError) as caught:
        run(step, range(8))
    assert caught.value.__notes__ == ["in epoch 0, batch 1, global step 1"]


def test_the_policy_skip_leaves_bad_batches_out_of_the_mean_and_says_so_once(caplog):
    result = run(mean_of_batch, [1.0] * 4 + [float("nan")] * 8 + [3.0] * 4, policy="skip")
    assert (result.batches, result.samples, result.avg_loss) == (4, 16, 2.0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "skipping such steps" in caplog.text
