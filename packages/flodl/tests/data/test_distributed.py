"""Loaders of several ranks together: every sample once, whatever happens in between."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flodl.core.errors import ConfigError, ResumeMismatchError
from flodl.data import DataLoader, Lease, LeaseFeed, RandomSampler, TensorDataSet, merge_states


def loader(
    count: int, rank: int = 0, world: int = 1, split: dict[str, Any] | None = None, **options: Any
) -> DataLoader:
    made = DataLoader(TensorDataSet(x=torch.arange(count)), **{"batch_size": 2, **options})
    if world > 1:
        made.partition(rank, world, **(split or {}))
    return made


def taken(batches: Any, count: int | None = None) -> list[int]:
    seen: list[int] = []
    for number, batch in enumerate(batches):
        seen += batch["x"].tolist()
        if count is not None and number + 1 >= count:
            break
    return seen


@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_take_equal_contiguous_slices_of_one_order(drop_last: bool) -> None:
    parts = [taken(loader(23, rank, 3, drop_last=drop_last).epoch(1)) for rank in range(3)]
    order = RandomSampler(23).indices(1).tolist()
    per_rank = 6 if drop_last else 7
    assert parts == [order[r * per_rank : (r + 1) * per_rank] for r in range(3)]
    assert len(loader(23, 0, 3, drop_last=drop_last)) == (3 if drop_last else 4)
    assert loader(23, 0, 3).is_distributed


@settings(max_examples=150)
@given(data=st.data())
def test_resuming_with_other_ranks_visits_each_sample_once(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 80))
    worlds = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    keep_last = data.draw(st.booleans())
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for position, world in enumerate(worlds):
        size = data.draw(st.integers(1, 9))
        options: dict[str, Any] = {"batch_size": size, "drop_last": not keep_last}
        split = {"uneven": data.draw(st.sampled_from(["drop", "allow"]))}
        group = [loader(count, rank, world, split, **options) for rank in range(world)]
        last = position == len(worlds) - 1
        steps = None if last else data.draw(st.integers(0, 6))
        for member in group:
            if state is not None:
                member.load_state_dict(json.loads(json.dumps(state)), strict=False)
        for member in group:
            epoch = member.epoch(3)
            for _ in range(len(epoch) if steps is None else min(steps, len(epoch))):
                seen += next(epoch)["x"].tolist()
        most = max(group, key=lambda member: member.state_dict()["taken"])
        state = most.state_dict()
        assert state["samples_consumed"] == len(seen)
        lost = group[0].batch_size * world if not keep_last else world
        if state["is_complete"]:
            break
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(range(count))
    # what a split left out is recovered by the next; only that of the last one loses a tail
    assert count - len(seen) < lost


@settings(max_examples=100)
@given(data=st.data())
def test_ranks_with_shares_resume_from_the_states_of_all(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 80))
    world = data.draw(st.integers(2, 5))
    shares = data.draw(st.lists(st.floats(0.1, 5), min_size=world, max_size=world))
    size = data.draw(st.integers(1, 6))
    split = {"shares": shares, "uneven": "allow"}
    group = [
        loader(count, rank, world, split, batch_size=size, drop_last=False) for rank in range(world)
    ]
    seen: list[int] = []
    for member in group:
        epoch = member.epoch(0)
        for _ in range(data.draw(st.integers(0, len(epoch)))):
            seen += next(epoch)["x"].tolist()
    state = merge_states([member.state_dict() for member in group])
    assert state["samples_consumed"] == len(seen)
    if not state["is_complete"]:
        new = data.draw(st.integers(1, 4))
        for rank in range(new):
            other = loader(count, rank, new, {"uneven": "allow"}, batch_size=3, drop_last=False)
            other.load_state_dict(state, strict=False)
            seen += taken(other.epoch(0))
    assert sorted(seen) == list(range(count))


def test_a_rank_goes_on_in_its_own_part_when_nothing_changed() -> None:
    split = {"shares": [2.0, 1.0]}
    whole = [taken(loader(40, rank, 2, split).epoch(0)) for rank in range(2)]
    for rank, steps in ((0, 5), (1, 2)):
        first = loader(40, rank, 2, split)
        head = taken(first.epoch(0), steps)
        second = loader(40, rank, 2, split)
        second.load_state_dict(first.state_dict())
        assert head + taken(second.epoch(0)) == whole[rank]
    lone = loader(40, 1, 2, split)
    with pytest.raises(ResumeMismatchError, match="rank 0 took 5 batches.*\n.*merge_states"):
        first = loader(40, 0, 2, split)
        taken(first.epoch(0), 5)
        lone.load_state_dict(first.state_dict(), strict=False)


def test_a_state_of_one_rank_serves_all_ranks_that_keep_step() -> None:
    whole = [taken(loader(40, rank, 4).epoch(0)) for rank in range(4)]
    first = loader(40, 2, 4)
    taken(first.epoch(0), 3)
    for rank in range(4):
        other = loader(40, rank, 4)
        other.load_state_dict(first.state_dict())
        assert taken(other.epoch(0)) == whole[rank][6:]


@pytest.mark.parametrize(
    ("other", "field"), [({"world": 3}, "world_size"), ({"split": {"uneven": "pad"}}, "uneven")]
)
def test_another_partition_is_refused_when_strict(other: Any, field: str) -> None:
    first = loader(40, 0, 2)
    taken(first.epoch(0), 1)
    second = loader(40, **{"rank": 0, "world": 2, **other})
    with pytest.raises(ResumeMismatchError, match=f"^{field}: the state was saved with"):
        second.load_state_dict(first.state_dict())


def test_states_of_different_runs_are_not_merged() -> None:
    states = []
    for rank, epoch in ((0, 0), (1, 1)):
        member = loader(40, rank, 2)
        taken(member.epoch(epoch), 1)
        states.append(member.state_dict())
    with pytest.raises(ResumeMismatchError, match="^epoch: rank 0 has 0, rank 1 has 1"):
        merge_states(states)
    with pytest.raises(ResumeMismatchError, match=r"ranks \[0\]: expected each rank once"):
        merge_states(states[:1])


def test_partitioning_after_a_state_was_loaded_is_refused() -> None:
    first = loader(10)
    taken(first.epoch(0), 1)
    second = loader(10)
    second.load_state_dict(first.state_dict())
    with pytest.raises(ConfigError, match="call partition first"):
        second.partition(0, 2)


def test_a_launcher_s_rank_is_taken_over_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    member = loader(20)
    assert not member.partition_from_environment()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert member.partition_from_environment()
    assert taken(member.epoch(0)) == RandomSampler(20).indices(0)[10:].tolist()


def positions(ranges: Any) -> list[int]:
    return [position for start, stop in ranges for position in range(start, stop)]


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_a_controller_does_each_sample_of_two_epochs_is_taken_once(
    data: st.DataObject, request: pytest.FixtureRequest
) -> None:
    """Ranks of any number lease, are cut short, give back and die; the pool is leased again."""
    draw = data.draw
    count, size = draw(st.integers(1, 50)), draw(st.integers(1, 7))
    drop_last = draw(st.booleans())  # the controller's: the tail is left out before any lease
    open_ = count // size * size if drop_last else count
    pool = {epoch: [(0, open_)] if open_ else [] for epoch in (0, 1)}
    world = draw(st.integers(1, 4))
    options: dict[str, Any] = {"batch_size": size, "drop_last": drop_last, "seed": 3}
    options["prefetch"] = draw(st.sampled_from([0, 0, 2]))
    numbers = TensorDataSet(x=torch.arange(count))
    feeds = [DataLoader(numbers, **options).leases() for _ in range(world)]
    request.addfinalizer(lambda: [feed.close() for feed in feeds])  # also of a draw that ends early
    seen: Counter[tuple[int, int]] = Counter()
    orders = [RandomSampler(count, 3).indices(epoch) for epoch in (0, 1)]
    number = 0

    def give(feed: LeaseFeed) -> None:
        nonlocal number
        epoch = 0 if pool[0] and (not pool[1] or draw(st.booleans())) else 1
        ranges = [pool[epoch].pop() for _ in range(min(len(pool[epoch]), draw(st.integers(1, 2))))]
        if not ranges:
            return
        start, stop = ranges[-1]
        middle = draw(st.integers(start + 1, stop))
        if middle < stop:
            ranges[-1] = (start, middle)
            pool[epoch].append((middle, stop))
        number += 1
        feed.assign(Lease(lease_id=number, epoch=epoch, ranges=tuple(ranges)))

    def take(feed: LeaseFeed) -> bool:
        batch = feed.take()
        if batch is None:
            return False
        where = positions(batch.ranges)
        assert batch["x"].tolist() == orders[batch.epoch][where].tolist()
        assert 1 <= batch.size <= size
        seen.update((batch.epoch, position) for position in where)
        return True

    def returned(rests: tuple[Lease, ...]) -> None:
        for rest in rests:
            pool[rest.epoch] += rest.ranges

    for _ in range(draw(st.integers(0, 25))):
        rank = draw(st.integers(0, world - 1))
        feed = feeds[rank]
        match draw(st.sampled_from(["give", "take", "take", "cut", "back", "die"])):
            case "give":
                give(feed)
            case "take":
                take(feed)
            case "cut":
                for progress in feed.progress():
                    held = progress.lease
                    cut_off = feed.cut(held.lease_id, draw(st.integers(0, 3)))
                    returned((Lease(lease_id=0, epoch=held.epoch, ranges=cut_off),))
            case "back":
                returned(feed.give_back())
            case "die":
                feed.close()
                returned(feed.give_back())
                feeds[rank] = DataLoader(numbers, **options).leases()
    while pool[0] or pool[1]:
        give(feeds[draw(st.integers(0, world - 1))])
    for feed in feeds:
        while take(feed):
            pass
        feed.close()
    assert seen == Counter({(epoch, p): 1 for epoch in (0, 1) for p in range(open_)})
