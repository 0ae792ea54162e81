import pytest
import torch

from ddp_bench.speed.turns import Finished, Turn, Turns


def make(*turns):
    epochs = []
    return Turns(iter(turns), epochs.append, torch.device("cpu")), epochs


def test_epoch_is_reported_with_its_time_and_its_mean_loss():
    turns, epochs = make(Turn(policy="epoch"))
    assert turns.begin().policy == "epoch"
    turns.end(torch.tensor(0.5))
    (epoch,) = epochs
    assert epoch.loss == 0.5
    assert 0 <= epoch.host_ms <= epoch.ms
    assert epoch.cpu_ms >= 0
    assert epoch.first_step_ms is None


def test_first_losses_are_kept_where_asked_for_and_forgotten_with_the_epoch():
    turns, epochs = make(Turn(policy="step", keep=2), Turn(policy="step"))
    for _ in range(2):
        turns.begin()
        for value in (3.0, 2.0, 1.0):
            assert turns.read(torch.tensor(value)) == value
        turns.end(2.0)
    assert [epoch.losses for epoch in epochs] == [[3.0, 2.0], []]
    assert epochs[0].first_step_ms <= epochs[0].ms


def test_loop_of_a_framework_says_nothing_of_its_host_time():
    turns, epochs = make(Turn(policy="step"))
    turns.begin()
    turns.end(1.0, is_own_loop=False)
    assert epochs[0].host_ms is None


def test_no_more_turns_end_a_loop_that_catches_exceptions():
    turns, _ = make()
    with pytest.raises(Finished):
        try:
            turns.begin()
        except Exception:
            pytest.fail("a loop caught its own end")
