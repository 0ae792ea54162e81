"""The way of a batch to its device, without a GPU: what stays, what moves, what is refused."""

from __future__ import annotations

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.data import Batch
from flodl.data.transfer import HostTransfer, PinningTransfer, pinned, transfer_to

BATCH = Batch([torch.arange(4), torch.zeros(4)], ["x", "y"], epoch=3, index=2)


def test_a_batch_for_the_host_is_handed_on_as_it_is() -> None:
    transfer = transfer_to(torch.device("cpu"), pin=False, max_pinned_bytes=0)
    sent = transfer.send(BATCH)
    assert transfer.receive(sent) is BATCH
    assert (sent.arrived, sent.is_held_back) == (None, False)
    assert transfer.empty((2, 3), torch.int16).shape == (2, 3)


def test_a_batch_for_a_device_without_streams_moves_when_it_is_received() -> None:
    transfer = HostTransfer(torch.device("meta"))
    moved = transfer.receive(transfer.send(BATCH))
    assert {tensor.device.type for tensor in moved} == {"meta"}
    assert (moved.names, moved.epoch, moved.index) == (("x", "y"), 3, 2)
    assert transfer.receive(transfer.send(moved)) is moved


def test_a_batch_that_is_on_its_device_in_part_is_moved_whole() -> None:
    mixed = BATCH.replace({"x": BATCH["x"].to("meta")})
    moved = HostTransfer(torch.device("meta")).receive(
        HostTransfer(torch.device("meta")).send(mixed)
    )
    assert {tensor.device.type for tensor in moved} == {"meta"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU to lock pages for")
def test_locked_pages_without_a_gpu_are_refused() -> None:
    with pytest.raises(ConfigError, match="pin=True: torch sees no GPU here"):
        transfer_to(torch.device("cpu"), pin=True, max_pinned_bytes=0)


@pytest.mark.cuda
def test_only_what_is_on_the_host_and_not_locked_is_copied_into_locked_pages() -> None:
    mixed = Batch([torch.arange(4).pin_memory(), torch.zeros(4), torch.ones(4, device="cuda")])
    locked = pinned(mixed)
    assert locked[0] is mixed[0]
    assert locked[1].is_pinned()
    assert locked[2] is mixed[2]
    assert pinned(locked) is locked
    host = PinningTransfer().send(mixed).batch
    assert all(tensor.is_pinned() for tensor in host)
