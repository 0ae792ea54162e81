import pytest
import torch
from torch import nn

from flodl.core.errors import StepContractError
from flodl.data import DataLoader, TensorDataSet
from flodl.engine.evaluate import EvalContext, evaluate

CONTEXT = EvalContext(epoch=3, device=torch.device("cpu"))


def loader(values, batch_size=4):
    data = TensorDataSet(torch.tensor(values, dtype=torch.float32))
    return DataLoader(data, batch_size=batch_size, shuffle=False, drop_last=False)


def test_every_sample_counts_once_also_in_a_short_last_batch():
    result = evaluate(nn.Identity(), loader([1, 1, 1, 1, 11]), lambda m, b, c: b[0].mean(), CONTEXT)
    assert result == {"eval": pytest.approx(3.0)}


def test_several_values_keep_their_names_and_order():
    def measure(model, batch, context):
        return {"mean": batch[0].mean(), "epoch": context.epoch}

    result = evaluate(nn.Identity(), loader(range(8)), measure, CONTEXT)
    assert list(result.items()) == [("mean", 3.5), ("epoch", 3.0)]


def test_the_model_is_in_evaluation_mode_without_gradients_and_gets_its_flags_back():
    model = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))
    model.train()
    model[1].eval()
    seen = []

    def measure(module, batch, context):
        seen.append((module.training, module[0].training, torch.is_grad_enabled()))
        return 0.0

    evaluate(model, loader([1.0]), measure, CONTEXT)
    assert seen == [(False, False, False)]
    assert [m.training for m in model.modules()] == [True, True, False]


def test_the_flags_come_back_when_the_evaluation_raises():
    model = nn.Dropout(0.5)

    def measure(module, batch, context):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        evaluate(model, loader([1.0]), measure, CONTEXT)
    assert model.training


def test_a_result_of_several_elements_is_refused_by_name():
    with pytest.raises(StepContractError, match=r"'hits' of shape \(4,\)"):
        evaluate(nn.Identity(), loader(range(4)), lambda m, b, c: {"hits": b[0]}, CONTEXT)


def test_names_that_change_between_batches_are_refused():
    def measure(model, batch, context):
        return {f"b{int(batch[0][0])}": 1.0}

    with pytest.raises(StepContractError, match="b4.*b0"):
        evaluate(nn.Identity(), loader(range(8)), measure, CONTEXT)
