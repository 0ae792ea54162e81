import pytest
import torch

from flodl.distributed.averaging.state import State, hand_over
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.group import GroupPlan
from flodl.distributed.collective.store import MemoryStore

STATE = State(
    tensors={"a/x": torch.arange(3), "b": torch.ones(2, 2, dtype=torch.bfloat16).t()},
    meta={"a/n": 1, "list": [1.5, None, {"k": "text"}]},
)


def assert_same(one, other):
    assert one.meta == other.meta
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def test_bytes_hold_all_of_it():
    assert_same(State.from_bytes(STATE.to_bytes()), STATE)
    assert_same(State.from_bytes(State().to_bytes()), State())


def test_parts_have_prefixes():
    part = STATE.part("a/")
    assert_same(part, State(tensors={"x": torch.arange(3)}, meta={"n": 1}))
    assert_same(part.prefixed("a/") | STATE, STATE)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\0" * 8 + b"{", STATE.to_bytes()[:-1]])
def test_other_bytes_are_refused(data):
    with pytest.raises(CollectiveError, match="cannot be read"):
        State.from_bytes(data)


def test_one_rank_hands_over_to_the_others(thread_ranks):
    memory = MemoryStore()

    def rank(k):
        plan = GroupPlan(prefix="s", rank=k, size=3)
        given = STATE if k == 0 else None
        return hand_over(given, plan, ControlStore(memory), Graveyard(), interrupted=lambda: False)

    for received in thread_ranks(3, rank):
        assert_same(received, STATE)
