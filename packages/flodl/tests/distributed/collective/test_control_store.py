"""torch's store interface over a client, as torch itself calls it: through a prefix."""

import threading
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import PrefixStore

from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import StoreClosed, StoreTimeout
from flodl.distributed.collective.store import MemoryStore


@pytest.fixture
def memory():
    return MemoryStore()


def test_every_operation_reaches_the_client_under_the_prefix(memory):
    whole = ControlStore(memory)
    store = PrefixStore("p", whole)
    store.set("k", "v")
    assert memory.get("p/k") == b"v"
    assert store.get("k") == b"v"
    assert [store.add("n", 2), store.add("n", 3)] == [2, 5]
    assert store.check(["k", "n"])
    assert not store.check(["k", "none"])
    assert store.compare_set("k", "v", "w") == b"w"
    assert store.compare_set("k", "v", "x") == b"w"
    assert store.delete_key("k")
    assert not store.delete_key("k")


def test_get_waits_for_its_key(memory):
    store, seen = ControlStore(memory), []
    reader = threading.Thread(target=lambda: seen.append(store.get("late")))
    reader.start()
    memory.set("late", b"here")
    reader.join(10)
    assert seen == [b"here"]


def test_a_wait_gives_up_after_the_time_that_torch_gives(memory):
    store = ControlStore(memory)
    with pytest.raises(StoreTimeout, match=r"a, b.*0\.02 s"):
        store.wait(["a", "b"], timedelta(seconds=0.02))
    with pytest.raises(StoreTimeout, match=r"k.*0\.01 s"):
        ControlStore(memory, timeout_s=0.01).get("k")


def test_close_ends_a_wait_that_is_under_way(memory):
    store, errors = ControlStore(memory), []

    def wait():
        try:
            store.wait(["never"], timedelta(seconds=60))
        except StoreClosed as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    store.close()
    waiter.join(10)
    assert len(errors) == 1
