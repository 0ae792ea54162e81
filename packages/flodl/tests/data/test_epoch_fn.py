from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from flodl.core.errors import (
    ConfigError,
    DataError,
    DataWorkerError,
    ResumeMismatchError,
    StaleIteratorError,
)
from flodl.data import DataLoader


class Curriculum:
    """Rows that say which epoch they are of; counts and can hold up calls."""

    def __init__(self, rows: int = 6) -> None:
        self.rows = rows
        self.epochs: list[int] = []
        self.threads: list[str] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.bad: set[int] = set()

    def __call__(self, epoch: int) -> dict[str, torch.Tensor]:
        self.epochs.append(epoch)
        self.threads.append(threading.current_thread().name)
        assert self.may_go.wait(10)
        if epoch in self.bad:
            self.bad.remove(epoch)
            raise RuntimeError(f"no data for {epoch}")
        return {"x": torch.arange(self.rows) + 100 * epoch}


def loader(fn: Any = None, **options: Any) -> Any:
    return DataLoader.from_epoch_fn(fn or Curriculum(), 2, **options)


def seen(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch["x"].tolist()]


def test_each_epoch_has_its_own_data_made_one_ahead() -> None:
    fn = Curriculum()
    with loader(fn) as made:
        epochs = [seen(made) for _ in range(3)]
        assert [sorted(rows) for rows in epochs] == [
            [100 * epoch + n for n in range(6)] for epoch in range(3)
        ]
        assert made.current_epoch == 2
    assert fn.epochs == [0, 1, 2, 3]
    assert fn.threads[0] == threading.current_thread().name
    assert all(name.startswith("flodl-epoch") for name in fn.threads[1:])


def test_the_order_is_that_of_seed_and_epoch_or_the_one_given() -> None:
    with loader() as one, loader() as two, loader(seed=3) as other, loader(shuffle=False) as plain:
        first = seen(one.epoch(0))
        assert seen(two.epoch(0)) == first != seen(other.epoch(0))
        assert seen(plain.epoch(0)) == list(range(6))


def test_the_buffers_stay_where_they_are_and_change_sides() -> None:
    with loader(shuffle=False) as made:
        place = [buffer.data_ptr() for buffer in made.buffers]
        for epoch in range(4):
            batches = list(made.epoch(epoch))
            assert made.active.item() == epoch % 2
            assert made.buffers[0][epoch % 2].tolist() == seen(batches)
        assert [buffer.data_ptr() for buffer in made.buffers] == place


def test_batches_of_the_running_epoch_are_untouched_by_the_next_one() -> None:
    fn = Curriculum()
    with loader(fn, shuffle=False) as made:
        epoch = made.epoch(0)
        first = next(epoch)
        assert made._next is not None
        made._next.result(10)
        assert made.prefetch_ready
        assert [first["x"].tolist(), *(b["x"].tolist() for b in epoch)] == [[0, 1], [2, 3], [4, 5]]


def test_an_error_of_the_function_surfaces_at_the_next_epoch_and_it_is_asked_again() -> None:
    fn = Curriculum()
    fn.bad = {1}
    with loader(fn) as made:
        assert len(seen(made.epoch(0))) == 6
        with pytest.raises(DataWorkerError, match="epoch 1 raised RuntimeError: no data for 1"):
            made.epoch(1)
        assert sorted(seen(made.epoch(1)))[0] == 100


def test_an_error_for_the_first_epoch_is_seen_when_the_loader_is_built() -> None:
    fn = Curriculum()
    fn.bad = {0}
    with pytest.raises(DataWorkerError, match="epoch 0 raised RuntimeError"):
        loader(fn)


def test_other_shapes_get_new_buffers_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with loader(lambda epoch: {"x": torch.arange(4 + 2 * epoch)}, shuffle=False) as made:
        assert seen(made.epoch(0)) == [0, 1, 2, 3]
        assert "other shapes" not in caplog.text
        assert seen(made.epoch(1)) == [0, 1, 2, 3, 4, 5]
        assert "epoch 1 has other shapes than the one before: new buffers" in caplog.text
        assert len(made) == 3


def test_any_epoch_can_be_asked_for() -> None:
    fn = Curriculum()
    with loader(fn, shuffle=False) as made:
        assert seen(made.epoch(7))[0] == 700
        assert seen(made.epoch(7))[0] == 700
        assert seen(made.epoch(8))[0] == 800
        assert seen(made.epoch(0))[0] == 0


def test_waiting_for_data_is_no_deadlock() -> None:
    fn = Curriculum()
    with loader(fn) as made:
        list(made.epoch(0))
        made._next.result(10)
        fn.may_go.clear()
        assert made.advance_epoch() == 1
        later = threading.Timer(0.05, fn.may_go.set)
        later.start()
        assert made.advance_epoch() == 2
        later.join()


def test_the_position_can_be_saved_and_loaded() -> None:
    with loader() as first, loader() as second:
        whole = seen(first.epoch(2))
        epoch = first.epoch(2)
        head = seen([next(epoch)])
        state = first.state_dict()
        second.load_state_dict(state)
        assert second.state_dict() == state
        assert head + seen(second) == whole
        with pytest.raises(ResumeMismatchError, match="^seed: "):
            second.load_state_dict({**state, "seed": 9})
        with pytest.raises(ResumeMismatchError, match="^keys: "):
            second.load_state_dict({})


def test_ranks_take_equal_parts() -> None:
    parts = []
    for rank in range(2):
        with loader(Curriculum(9)) as made:
            made.partition(rank, 2)
            parts.append(seen(made.epoch(0)))
    assert [len(part) for part in parts] == [4, 4]
    assert not set(parts[0]) & set(parts[1])


def test_changing_over_makes_the_running_iterator_stale() -> None:
    with loader() as made:
        running = made.epoch(0)
        next(running)
        assert made.advance_epoch() == 1
        with pytest.raises(StaleIteratorError):
            next(running)
        assert sorted(seen(made.epoch(1)))[0] == 100


def test_an_older_iterator_is_stale_and_a_closed_loader_of_no_use() -> None:
    made = loader()
    older = made.epoch(0)
    made.epoch(1)
    with pytest.raises(StaleIteratorError):
        next(older)
    made.close()
    with pytest.raises(DataError, match="this loader is closed"):
        made.epoch(2)


def test_a_dropped_loader_ends_its_thread() -> None:
    before = threading.active_count()
    made = loader()
    list(made.epoch(0))
    del made
    for thread in threading.enumerate():
        if thread.name.startswith("flodl-epoch"):
            thread.join(10)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"x": torch.arange(3), "y": torch.arange(4)}, r"tensors of \[3, 4\] rows for epoch 0"),
        (torch.tensor(1.0), r"of \[0\] rows"),
        ([], r"of \[\] rows"),
    ],
)
def test_data_that_are_no_rows_are_refused(data: Any, says: str) -> None:
    with pytest.raises(DataWorkerError, match=says):
        loader(lambda epoch: data)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="no option 'prefetch'"):
        loader(prefetch=3)


def test_a_device_that_cannot_hold_both_buffers_is_streamed_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flodl.data import epoch_fn
    from flodl.data.residency import Decision

    monkeypatch.setattr(
        epoch_fn.EpochFnLoader,
        "_decide",
        lambda self: Decision(is_resident=False, reason="no room"),
    )
    with loader(shuffle=False) as made:
        assert not made.is_resident
        assert [seen(made.epoch(n))[0] for n in range(3)] == [0, 100, 200]
