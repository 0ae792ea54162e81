"""The store's table, and one suite over the store within a process."""

import threading

import pytest

from flodl.distributed.collective.errors import CollectiveError, StoreTimeout
from flodl.distributed.collective.store import MemoryStore, StoreTable


class TestStoreTable:
    def test_a_parked_token_is_released_once_by_the_last_of_its_keys(self):
        table = StoreTable()
        table.set("a", b"1")
        assert not table.park("token", ["a", "b", "c"])
        table.set("c", b"")
        assert table.released() == []
        table.set("b", b"")
        assert table.released() == ["token"]
        assert table.released() == []

    def test_a_token_whose_keys_are_there_is_not_parked(self):
        table = StoreTable()
        table.set("a", b"1")
        assert table.park(1, ["a"])
        table.set("a", b"2")
        assert table.released() == []

    def test_a_dropped_token_is_never_released(self):
        table = StoreTable()
        table.park(1, ["a"])
        assert table.drop(1)
        assert not table.drop(1)
        table.set("a", b"")
        assert table.released() == []

    def test_add_starts_at_zero_and_wakes_waiters(self):
        table = StoreTable()
        table.park(7, ["n"])
        assert [table.add("n", 2), table.add("n", -5)] == [2, -3]
        assert table.released() == [7]
        assert table.get("n") == b"-3"

    def test_add_to_text_is_an_error_and_changes_nothing(self):
        table = StoreTable()
        table.set("n", b"text")
        with pytest.raises(CollectiveError, match="not a number"):
            table.add("n", 1)
        assert table.get("n") == b"text"

    @pytest.mark.parametrize(
        ("before", "expected", "after", "returned"),
        [
            (None, b"", b"new", b"new"),
            (None, b"old", None, b"old"),
            (b"old", b"old", b"new", b"new"),
            (b"other", b"old", b"other", b"other"),
        ],
    )
    def test_compare_set(self, before, expected, after, returned):
        table = StoreTable()
        if before is not None:
            table.set("k", before)
        assert table.compare_set("k", expected, b"new") == returned
        assert table.get("k") == after

    def test_forget_removes_one_generation(self):
        table = StoreTable()
        for key in ("run/1/a", "run/1/b", "run/10/a"):
            table.set(key, b"")
        assert table.forget("run/1/") == 2
        assert table.check(["run/10/a"])
        assert len(table) == 1
        assert table.delete("run/10/a")
        assert not table.delete("run/10/a")


class TestMemoryStore:
    def test_wait_returns_when_another_thread_sets_the_key(self):
        store = MemoryStore()
        seen = []
        waiter = threading.Thread(target=lambda: seen.append(store.wait(["a", "b"], 10)))
        waiter.start()
        store.set("a", b"1")
        store.add("b", 1)
        waiter.join(10)
        assert seen == [None]
        assert store.get("a") == b"1"

    def test_wait_gives_up_naming_the_keys(self):
        with pytest.raises(StoreTimeout, match="a, b"):
            MemoryStore().wait(["a", "b"], 0.01)

    def test_get_of_an_absent_key_is_an_error(self):
        with pytest.raises(StoreTimeout, match="'a'"):
            MemoryStore().get("a")

    def test_the_rest_is_the_table(self):
        store = MemoryStore()
        assert store.compare_set("k", b"", b"v") == b"v"
        assert store.check(["k"])
        assert store.delete("k")
        store.set("g/1", b"")
        assert store.forget("g/") == 1
        assert not store.check(["g/1"])
