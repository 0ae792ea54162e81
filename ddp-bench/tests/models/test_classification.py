import pytest
import torch
from torch import nn

from ddp_bench.models.classification import accuracy, train_step
from flodl import Batch

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.5]])
BATCH = Batch([LOGITS, torch.tensor([0, 1, 2])], ["image", "label"])


def test_accuracy_is_the_share_of_right_answers():
    assert float(accuracy(nn.Identity(), BATCH)) == pytest.approx(2 / 3)


def test_loss_is_the_mean_negative_log_probability_of_the_labels():
    expected = -LOGITS.log_softmax(1)[[0, 1, 2], [0, 1, 2]].mean()
    torch.testing.assert_close(train_step(nn.Identity(), BATCH), expected)
