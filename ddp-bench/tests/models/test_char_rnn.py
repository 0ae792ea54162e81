import math
from dataclasses import replace

import pytest
import torch

from ddp_bench.models.char_rnn import CHAR_RNN, FlatThenDecay, build, next_character_loss
from flodl import Batch


def test_rate_is_constant_for_ten_epochs_and_then_falls_with_each():
    schedule = FlatThenDecay(2e-3, steps_per_epoch=7)
    assert schedule.lr(0) == schedule.lr(69) == 2e-3
    assert schedule.lr(70) == schedule.lr(76) == pytest.approx(2e-3 * 0.97)
    assert schedule.lr(77) == pytest.approx(2e-3 * 0.97**2)
    assert schedule.lr(49 * 7) == pytest.approx(2e-3 * 0.97**40)


def test_set_up_is_the_published_one():
    optimizer = CHAR_RNN.optimizer([torch.nn.Parameter(torch.zeros(1))], CHAR_RNN.lr)
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert (optimizer.defaults["alpha"], optimizer.defaults["lr"]) == (0.95, 2e-3)
    assert CHAR_RNN.clip_value == 5.0


def test_untrained_model_is_about_as_good_as_guessing(facts):
    torch.manual_seed(0)
    batch = Batch(list(torch.randint(65, (2, 4, 16))), ["input", "target"])
    loss = next_character_loss(build(torch.device("cpu"), facts), batch)
    assert float(loss.detach()) == pytest.approx(math.log(65), abs=0.1)


def test_logits_come_for_every_position(facts):
    model = build(torch.device("cpu"), facts)
    assert model(torch.randint(65, (3, 8))).shape == (3, 8, 65)


def test_data_without_a_vocabulary_is_refused(facts):
    with pytest.raises(ValueError, match="'test' has no vocabulary"):
        build(torch.device("cpu"), replace(facts, vocabulary=None))
