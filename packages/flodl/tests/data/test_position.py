from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler as TorchRandom

from flodl.core.errors import ResumeMismatchError
from flodl.data import DataLoader, RandomSampler, TensorDataSet


def loader(count: int = 10, **options: Any) -> DataLoader:
    return DataLoader(TensorDataSet(x=torch.arange(count)), **{"batch_size": 2, **options})


def seen(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_resuming_after_any_batch_yields_exactly_the_rest(prefetch: int, drop_last: bool) -> None:
    options: dict[str, Any] = {"count": 11, "prefetch": prefetch, "drop_last": drop_last}
    whole = seen(loader(**options).epoch(4))
    for taken in range(len(whole)):
        first = loader(**options)
        epoch = first.epoch(4)
        for _ in range(taken):
            next(epoch)
        state = json.loads(json.dumps(first.state_dict()))
        epoch.close()
        second = loader(**options)
        second.load_state_dict(state)
        rest = second.epoch(4)
        assert len(rest) == len(whole) - taken
        batches = list(rest)
        assert seen(batches) == whole[taken:]
        assert [batch.index for batch in batches] == list(range(taken, len(whole)))


def test_the_state_counts_what_was_taken_not_what_was_loaded_ahead() -> None:
    first = loader(prefetch=4)
    epoch = first.epoch(0)
    next(epoch)
    state = first.state_dict()
    assert (state["epoch"], state["batches"], state["samples_consumed"]) == (0, 1, 2)
    epoch.close()


def test_a_finished_epoch_leads_to_the_next_one() -> None:
    first = loader()
    list(first.epoch(3))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert next(iter(second)).epoch == 4


def test_asking_for_a_finished_epoch_yields_what_is_left_of_it_nothing() -> None:
    first = loader(count=11)
    list(first.epoch(3))
    second = loader(count=11)
    second.load_state_dict(first.state_dict())
    third = loader(count=11)
    third.load_state_dict(second.state_dict())
    for target in (second, third):
        assert list(target.epoch(3)) == []
        assert len(target.epoch(3)) == 5


def test_a_finished_epoch_of_an_unrepeatable_sampler_can_be_left_behind() -> None:
    first = loader(sampler=TorchRandom(range(10)))
    list(first.epoch(0))
    second = loader(sampler=TorchRandom(range(10)))
    second.load_state_dict(first.state_dict())
    assert next(iter(second)).epoch == 1


def test_iterating_over_a_resumed_loader_goes_on_where_it_stopped() -> None:
    first = loader()
    epoch = first.epoch(2)
    next(epoch)
    second = loader()
    second.load_state_dict(first.state_dict())
    assert seen(second) == seen(epoch)
    assert next(iter(second)).epoch == 3


def test_a_fresh_loader_s_state_leads_to_its_first_epoch() -> None:
    second = loader()
    second.load_state_dict(loader().state_dict())
    assert seen(second) == seen(loader().epoch(0))


def test_other_epochs_than_the_interrupted_one_are_whole() -> None:
    first = loader()
    next(first.epoch(2))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert len(second.epoch(5)) == 5
    assert len(second.epoch(2)) == 5


def test_the_state_right_after_loading_is_the_loaded_one() -> None:
    first = loader()
    next(first.epoch(2))
    second = loader()
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()


def test_states_can_be_saved_and_loaded_again_within_one_epoch() -> None:
    whole = seen(loader().epoch(0))
    state = loader().state_dict()
    for number in range(5):
        again = loader()
        again.load_state_dict(state)
        assert seen([next(again.epoch(0))]) == [whole[number]]
        state = again.state_dict()
    assert state["is_complete"]


@given(taken=st.integers(0, 4), old=st.integers(1, 6), new=st.integers(1, 6), keep=st.booleans())
def test_another_batch_size_goes_on_from_the_same_sample(
    taken: int, old: int, new: int, keep: bool
) -> None:
    first = loader(count=23, batch_size=old, drop_last=False)
    epoch = first.epoch(1)
    for _ in range(min(taken, len(epoch))):
        next(epoch)
    state = first.state_dict()
    second = loader(count=23, batch_size=new, drop_last=not keep)
    second.load_state_dict(state, strict=False)
    rest = [x for batch in seen(second.epoch(1)) for x in batch]
    left = RandomSampler(23).indices(1)[state["samples_consumed"] :].tolist()
    assert rest == (left if keep else left[: len(left) - len(left) % new])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"count": 12}, "dataset_length"),
        ({"seed": 1}, "seed"),
        ({"shuffle": False}, "shuffle"),
        ({"batch_size": 5}, "batch_size"),
        ({"drop_last": False}, "drop_last"),
    ],
)
def test_another_loader_than_the_saved_one_is_refused_by_field(
    options: dict[str, Any], field: str
) -> None:
    first = loader()
    next(first.epoch(0))
    with pytest.raises(ResumeMismatchError, match=f"^{field}: the state was saved with"):
        loader(**options).load_state_dict(first.state_dict())


@pytest.mark.parametrize("options", [{"count": 12}, {"seed": 1}])
def test_not_strict_still_refuses_other_data(options: dict[str, Any]) -> None:
    with pytest.raises(ResumeMismatchError, match="the state was saved with"):
        loader(**options).load_state_dict(loader().state_dict(), strict=False)


def test_another_order_for_the_same_epoch_is_refused() -> None:
    first = loader(sampler=TorchRandom(range(10)))
    torch.manual_seed(0)
    next(first.epoch(0))
    torch.manual_seed(1)
    with pytest.raises(ResumeMismatchError, match="order_crc: epoch 0 was in an order with CRC"):
        loader(sampler=TorchRandom(range(10))).load_state_dict(first.state_dict())


def test_a_refused_state_leaves_the_loader_as_it_was() -> None:
    target = loader()
    epoch = target.epoch(0)
    next(epoch)
    before = target.state_dict()
    with pytest.raises(ResumeMismatchError):
        target.load_state_dict(loader(seed=5).state_dict())
    assert target.state_dict() == before
    assert len(list(epoch)) == 4


class Stateful(RandomSampler):
    """A sampler with state of its own: how often it was loaded."""

    def __init__(self) -> None:
        super().__init__(10)
        self.note = "fresh"

    def state_dict(self) -> dict[str, Any]:
        return {"note": self.note}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.note = state["note"]


def test_the_sampler_s_own_state_travels_along() -> None:
    sampler = Stateful()
    sampler.note = "used"
    state = loader(sampler=sampler).state_dict()
    target = Stateful()
    loader(sampler=target).load_state_dict(state)
    assert target.note == "used"


def test_a_state_without_the_sampler_s_is_refused() -> None:
    plain = loader(sampler=RandomSampler(10)).state_dict()
    with pytest.raises(ResumeMismatchError, match="the state lacks that of a sampler"):
        loader(sampler=Stateful()).load_state_dict(plain)
    with pytest.raises(ResumeMismatchError, match="the state has that of a sampler"):
        loader(sampler=RandomSampler(10)).load_state_dict(loader(sampler=Stateful()).state_dict())


def test_a_state_that_is_refused_late_leaves_the_sampler_s_own_alone() -> None:
    other = Stateful()
    other.note = "used"
    first = loader(sampler=other)
    next(first.epoch(0))
    target = Stateful()
    with pytest.raises(ResumeMismatchError, match="order_crc"):
        loader(sampler=target).load_state_dict({**first.state_dict(), "order_crc": 1})
    assert target.note == "fresh"
