"""The suite of communicators over real GPUs: each test in a process of its own is best."""

import threading
import time

import pytest
import torch

from flodl.distributed.collective.errors import NcclAborted, NcclError
from flodl.distributed.collective.nccl import NcclComms, NcclRankComm, NcclUniqueId, ReduceOp

pytestmark = [
    pytest.mark.nccl,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
DEVICES = ["cuda:0", "cuda:1"]


@pytest.fixture
def second_is_current():
    """Make the second GPU the current one for a test."""
    with torch.cuda.device(1):
        yield


def on_each(*values):
    pairs = zip(values, DEVICES, strict=True)
    return [torch.full((1000,), float(value), device=device) for value, device in pairs]


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (ReduceOp.Sum, 5.0),
        (ReduceOp.Prod, 6.0),
        (ReduceOp.Max, 3.0),
        (ReduceOp.Min, 2.0),
        (ReduceOp.Avg, 2.5),
    ],
)
@pytest.mark.usefixtures("second_is_current")
def test_every_operation_and_the_current_device_stays(op, wanted):
    tensors = on_each(2, 3)
    with NcclComms(DEVICES) as comms:
        comms.all_reduce(tensors, op)
        assert torch.cuda.current_device() == 1
        assert all((t == wanted).all() for t in tensors)
        comms.broadcast(tensors, root=1)
        assert torch.cuda.current_device() == 1


def test_work_on_given_streams_is_ordered_with_theirs():
    streams = [torch.cuda.Stream(device) for device in DEVICES]
    tensors = on_each(0, 0)
    torch.cuda.synchronize(0), torch.cuda.synchronize(1)
    with NcclComms(DEVICES) as comms:
        for stream, tensor in zip(streams, tensors, strict=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(10_000_000)
                tensor.fill_(1.0)
        comms.all_reduce_on_streams(tensors, ReduceOp.Sum, streams)
        for stream in streams:
            stream.synchronize()
        assert all((t == 2).all() for t in tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_dtypes(dtype):
    tensors = [torch.ones(10, dtype=dtype, device=device) for device in DEVICES]
    with NcclComms(DEVICES) as comms:
        comms.all_reduce(tensors)
    assert all((t == 2).all() for t in tensors)


def test_wrong_tensors_and_a_split_group_are_refused():
    comms = NcclComms(DEVICES)
    with pytest.raises(NcclError, match=r"tensors\[0\] is on cpu"):
        comms.all_reduce([torch.ones(1), torch.ones(1)])
    with pytest.raises(NcclError, match="each once"):
        NcclComms(["cuda:0", "cuda:0"])
    ranks = comms.split()
    with pytest.raises(NcclError, match="was split or closed"):
        comms.all_reduce(on_each(1, 1))
    for rank in ranks:
        rank.abort_handle().abort()


def test_a_split_group_works_from_two_threads(thread_ranks):
    ranks = NcclComms(DEVICES).split()

    def rank(k):
        first = torch.full((10,), float(k + 1), device=DEVICES[k])
        second = torch.full((10,), float(k), device=DEVICES[k])
        ranks[k].all_reduce([first, second])
        ranks[k].broadcast([second], root=0)
        return first[0].item(), second[0].item()

    assert thread_ranks(2, rank) == [(3.0, 1.0)] * 2
    for comm in ranks:
        comm.abort_handle().abort()


def test_abort_frees_a_thread_that_waits_for_a_peer():
    first, second = NcclComms(DEVICES).split()
    handle, errors = first.abort_handle(), []

    def wait():
        try:
            first.all_reduce([torch.ones(1000, device=DEVICES[0])])
        except NcclAborted as error:
            errors.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    time.sleep(0.5)  # there is no sign of a kernel that waits; it must not have come back
    assert thread.is_alive()
    handle.abort()
    handle.abort()
    thread.join(20)
    assert not thread.is_alive()
    assert len(errors) == 1
    first.close()
    second.abort_handle().abort()
    x = torch.ones(4, device=DEVICES[0])
    assert (x + x).sum().item() == 8


def joined(rank, uid):
    torch.cuda.set_device(rank)
    comm = NcclRankComm.init_rank(rank, 2, NcclUniqueId.from_bytes(uid))
    tensor = torch.full((10,), float(rank + 1), device=f"cuda:{rank}")
    comm.all_reduce([tensor], ReduceOp.Max)
    comm.close()
    return tensor[0].item()


def test_two_processes_join_by_the_bytes_of_an_id(process_ranks):
    assert process_ranks(2, joined, bytes(NcclUniqueId.new())) == [2.0, 2.0]
