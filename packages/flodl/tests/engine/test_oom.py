"""Batches that do not fit into memory, with steps that run out of it on cue."""

import logging

import pytest
import torch
from torch import nn

from flodl.data import Batch
from flodl.engine.oom import parts_of
from flodl.engine.step import TrainStep
from flodl.graph import FlowBuilder
from flodl.nn import StateAdd


class Narrow:
    """A step that has room for so many rows; ``late`` runs out in backward, not before."""

    def __init__(self, room, late=False):
        self.room, self.late, self.taken = room, late, []

    def __call__(self, model, batch):
        self.taken.append(batch.size)
        is_too_much = batch.size > self.room
        if is_too_much and not self.late:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore")
        output = model(batch[0])
        if is_too_much:
            output.register_hook(self.fail)
        loss = (output - batch[1]).square().mean()
        return loss, {"rows": float(batch.size), "double": 2 * loss.detach()}

    @staticmethod
    def fail(gradient):
        raise torch.OutOfMemoryError("CUDA out of memory in backward")


def batch_of(index, rows=12):
    generator = torch.Generator().manual_seed(index)
    return Batch([torch.randn(rows, size, generator=generator) for size in (8, 4)], index=index)


def trained(step_fn, steps=6, rows=12, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    step = TrainStep(step_fn, model, torch.optim.Adam(model.parameters(), lr=0.05), **options)
    outputs = [step(batch_of(index, rows)) for index in range(steps)]
    return step, [float(output.loss) for output in outputs], model, outputs


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("room", "parts"), [(6, 2), (5, 4), (3, 4), (2, 8)])
def test_a_batch_in_parts_trains_as_the_whole_one(room, parts, late, caplog):
    whole, narrow = Narrow(99), Narrow(room, late)
    _, losses, model, outputs = trained(whole, max_grad_norm=0.5)
    with caplog.at_level(logging.WARNING):
        step, split_losses, split_model, split_outputs = trained(narrow, max_grad_norm=0.5)
    assert split_losses == pytest.approx(losses, abs=1e-5)
    for ours, theirs in zip(split_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert step.parts == parts
    last, split_last = outputs[-1].metrics, split_outputs[-1].metrics
    assert float(split_last["double"]) == pytest.approx(float(last["double"]), abs=1e-5)
    # the first batch found out in how many parts; the later ones were not tried whole
    assert narrow.taken.count(12) == 1
    (*_, warning) = caplog.messages
    assert f"a batch of 12 samples is taken in {parts} parts of up to {-(-12 // parts)}" in warning
    assert warning.endswith(
        "CUDA out of memory in backward" if late else "CUDA out of memory. Tried to allocate 2 GiB."
    )


def test_the_last_rows_count_as_much_as_the_others():
    _, losses, model, _ = trained(Narrow(99), rows=7)
    step, split_losses, split_model, _ = trained(Narrow(2), rows=7)
    assert step.parts == 4
    assert split_losses == pytest.approx(losses, abs=1e-5)
    for ours, theirs in zip(split_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_eight_parts_are_the_most(caplog):
    narrow = Narrow(1)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        trained(narrow)
    assert narrow.taken == [12, 6, 3, 2]
    assert len(caplog.records) == 3


def test_where_it_is_not_wanted_the_error_is_the_users():
    narrow = Narrow(6)
    with pytest.raises(torch.OutOfMemoryError):
        trained(narrow, splits_oom=False)
    assert narrow.taken == [12]


def test_another_error_is_not_taken_for_lack_of_memory():
    def broken(model, batch):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        trained(broken)


def test_an_accumulation_is_split_as_long_as_nothing_was_added_to_it():
    _, losses, model, _ = trained(Narrow(99), accumulate=3)
    step, split_losses, split_model, _ = trained(Narrow(6), accumulate=3)
    assert step.parts == 2
    assert split_losses == pytest.approx(losses, abs=1e-5)
    for ours, theirs in zip(split_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_gradients_of_earlier_batches_are_not_spoiled():
    narrow = Narrow(99, late=True)

    def step_fn(model, batch):
        narrow.room = 6 if batch.index == 1 else 99
        return narrow(model, batch)

    with pytest.raises(torch.OutOfMemoryError):
        trained(step_fn, accumulate=3)


def test_a_step_with_a_reducer_exchanges_once():
    calls = []
    _, losses, model, _ = trained(Narrow(6), reduce=lambda gradients: calls.append(1))
    assert len(calls) == 6
    _, whole_losses, whole, _ = trained(Narrow(99))
    assert losses == pytest.approx(whole_losses, abs=1e-5)
    for ours, theirs in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_graph_with_state_is_not_split():
    model = FlowBuilder(nn.Linear(8, 4)).through(StateAdd()).using("memory").tag("memory").build()
    step = TrainStep(Narrow(6), model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(torch.OutOfMemoryError):
        step(batch_of(0))


def test_parts_are_as_equal_as_can_be_and_never_empty():
    assert [part.size for part in parts_of(batch_of(0, 11), 4)] == [3, 3, 3, 2]
    assert [part.size for part in parts_of(batch_of(0, 3), 8)] == [1, 1, 1]
    whole = batch_of(0, 11)
    assert torch.equal(torch.cat([part[1] for part in parts_of(whole, 4)]), whole[1])


def test_a_step_that_is_split_is_not_captured(place, caplog):
    def step_fn(model, batch):
        if batch.size == 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return (model(batch[0]) - batch[1]).square().mean()

    torch.manual_seed(0)
    model = nn.Linear(8, 4).to(place.device)
    step = TrainStep(step_fn, model, place.optimizer(model.parameters(), 0.05))
    for index in range(8):
        step(place.batches(index))
    assert step.mode == "captured"
    step(place.batches(0, rows=12))  # of another shape: it begins eagerly
    step(place.batches(0))
    assert step.parts == 2
    assert step.mode == "eager"
    assert step.reason.code == "batch_split"
    assert "falling back to eager: batch_split: memory ran out" in caplog.text
