"""The suite of communicators: over the double here, over GPUs in `test_nccl.py`."""

import threading

import pytest
import torch

from flodl.distributed.collective.comms import ReduceOp
from flodl.distributed.collective.errors import NcclAborted, NcclError, NcclUnavailable
from flodl.distributed.collective.fake_nccl import FakeNcclComms
from flodl.distributed.collective.nccl import NcclComms, NcclUniqueId
from flodl.distributed.collective.nccl import ReduceOp as RealReduceOp


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (ReduceOp.Sum, [4.0, 6.0]),
        (ReduceOp.Prod, [3.0, 8.0]),
        (ReduceOp.Max, [3.0, 4.0]),
        (ReduceOp.Min, [1.0, 2.0]),
        (ReduceOp.Avg, [2.0, 3.0]),
    ],
)
def test_every_operation(op, wanted):
    tensors = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
    with FakeNcclComms([0, 1]) as comms:
        comms.all_reduce(tensors, op)
    assert [t.tolist() for t in tensors] == [wanted] * 2


def test_the_numbers_are_those_of_nccl():
    assert [op.name for op in sorted(RealReduceOp)] == ["Sum", "Prod", "Max", "Min", "Avg"]
    assert [*map(int, sorted(RealReduceOp))] == [0, 1, 2, 3, 4]


def test_broadcast_copies_the_root():
    tensors = [torch.full((3,), k) for k in range(3)]
    FakeNcclComms([0, 1, 2]).broadcast(tensors, root=2)
    assert [t.tolist() for t in tensors] == [[2, 2, 2]] * 3


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ([torch.ones(2)], "1 tensors for 2 devices"),
        ([torch.ones(2), torch.ones(3)], r"tensors\[1\] has 3 elements"),
        ([torch.ones(2), torch.ones(2).double()], "must be alike"),
        ([torch.ones(2, 2).t(), torch.ones(2, 2)], "not contiguous"),
        ([torch.ones(2, dtype=torch.bool)] * 2, "which cannot be sent"),
        ([torch.ones(2, device="meta")] * 2, "on meta, not on cpu"),
    ],
    ids=["number", "size", "dtype", "strides", "bool", "device"],
)
def test_tensors_that_do_not_fit_are_refused_before_anything_starts(tensors, text):
    with pytest.raises(NcclError, match=text):
        FakeNcclComms([0, 1]).all_reduce(tensors)


def test_a_split_group_works_by_threads_and_the_whole_no_more(thread_ranks):
    comms = FakeNcclComms([0, 1, 2])
    ranks = comms.split()
    with pytest.raises(NcclError, match="was split or closed"):
        comms.all_reduce([torch.ones(1)] * 3)
    with pytest.raises(NcclError, match="was split or closed"):
        comms.split()

    def rank(k):
        with ranks[k] as comm:
            assert (comm.rank, comm.size) == (k, 3)
            first, second, news = torch.full((2,), float(k)), torch.ones(1), torch.tensor([k])
            comm.all_reduce([first, second])
            comm.broadcast([news], root=1)
            return first.tolist(), second.item(), news.item()

    assert thread_ranks(3, rank) == [([3.0, 3.0], 3.0, 1)] * 3


def test_abort_frees_a_waiting_thread_and_refuses_later_calls():
    first, _ = FakeNcclComms([0, 1]).split()
    handle = first.abort_handle()
    errors = []

    def wait():
        try:
            first.all_reduce([torch.ones(1)])
        except NcclAborted as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert not handle.is_aborted
    handle.abort()
    handle.abort()
    thread.join(20)
    assert len(errors) == 1
    assert handle.is_aborted
    with pytest.raises(NcclAborted):
        first.all_reduce([torch.ones(1)])
    first.close()


def test_an_empty_group_and_a_missing_root_are_refused():
    with pytest.raises(NcclError, match=r"devices \[\]"):
        FakeNcclComms([])
    with pytest.raises(NcclError, match="root=2"):
        FakeNcclComms([0, 1]).broadcast([torch.ones(1), torch.ones(1)], root=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")
def test_without_gpus_the_real_one_is_unavailable():
    with pytest.raises(NcclUnavailable):
        NcclComms([0, 1])


def test_a_unique_id_of_another_length_is_refused():
    with pytest.raises(NcclError, match="128"):
        NcclUniqueId.from_bytes(b"abc")
    same = [NcclUniqueId.from_bytes(bytes(range(128))) for _ in range(2)]
    assert same[0] == same[1]
    assert len({*same}) == 1
    assert bytes(same[0]) == bytes(range(128))
