"""How one loader's batches reach their device: which feed, which depth, what is held."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.data import LoaderConfig, TensorDataSet, delivery
from flodl.data.delivery import Delivery
from flodl.data.feed import DirectFeed, ResidentFeed, StreamFeed
from flodl.device import MemoryInfo

IN_MEMORY = TensorDataSet(x=torch.arange(10), y=torch.zeros(10, 3))


class Fetched:
    is_fixed = True

    def __len__(self) -> int:
        return 10

    def get_batch(self, indices: torch.Tensor) -> Any:
        return [indices]


def deliver(dataset: Any, device: str = "cpu", **options: Any) -> Delivery:
    config = LoaderConfig(**{"batch_size": 2, "device": device, **options})
    return Delivery(dataset, config, torch.device(device), num_batches=5)


@pytest.mark.parametrize(
    ("dataset", "device", "options", "kind", "depth"),
    [
        (IN_MEMORY, "cpu", {}, DirectFeed, 0),
        (IN_MEMORY, "cpu", {"prefetch": 3}, StreamFeed, 3),
        (IN_MEMORY, "cpu", {"streaming": True}, StreamFeed, 2),
        (IN_MEMORY, "cpu", {"workers": 3}, StreamFeed, 6),
        (IN_MEMORY, "cpu", {"timeout": 5.0}, StreamFeed, 2),
        (Fetched(), "cpu", {"resident": False}, StreamFeed, 2),
        (Fetched(), "cpu", {"resident": True}, DirectFeed, 0),
        (Fetched(), "cpu", {"resident": False, "prefetch": 0}, DirectFeed, 0),
        (IN_MEMORY, "meta", {"resident": True}, ResidentFeed, 0),
        (IN_MEMORY, "meta", {}, DirectFeed, 0),
    ],
)
def test_what_is_delivered_decides_the_feed_and_the_depth(
    dataset: Any, device: str, options: Any, kind: type[Any], depth: int
) -> None:
    made = deliver(dataset, device, **options)
    feed = made.feed(lambda: None)
    assert type(feed) is kind
    assert made.depth.depth == depth
    feed.close(wait=True)


def test_names_are_those_of_the_config_then_of_the_set_and_their_number_is_checked() -> None:
    assert deliver(IN_MEMORY).names == ("x", "y")
    assert deliver(IN_MEMORY, names=["a", "b"]).names == ("a", "b")
    with pytest.raises(ConfigError, match="1 names for 2 tensors"):
        deliver(IN_MEMORY, names=["a"])


def test_closing_lets_go_of_the_set() -> None:
    made = deliver(IN_MEMORY, "meta", resident=True)
    assert made.store is not None
    made.close()
    assert made.store is None


def test_rows_of_leases_lie_beside_the_order_of_an_epoch() -> None:
    made = deliver(IN_MEMORY, "meta", resident=True)
    assert made.store is not None
    epoch = made.begin(torch.arange(10))
    lease = made.begin(torch.tensor([3, 4]), in_place=False)
    assert made.store.order.numel() == 10
    assert epoch.device is not None
    assert epoch.device._base is made.store.order
    assert lease.device is not None
    assert lease.device._base is None
    assert (epoch.is_run, lease.is_run) == (True, True)


def test_tensors_that_are_on_the_device_already_stay_where_they_are() -> None:
    data = TensorDataSet(x=torch.empty(10, 3, device="meta"), y=torch.empty(10, device="meta"))
    made = deliver(data, "meta", resident=True)
    assert made.store is not None
    assert all(a is b for a, b in zip(made.store.tensors, data.tensors, strict=True))


@pytest.mark.parametrize(
    ("reserve", "peak", "expected"),
    [
        (None, 0, 30),  # 90 - 50 in use = 40 GiB, in batches of 4/3 GiB
        (None, 60, 15),
        (10, 60, 22),
        (1000, 0, 2),
    ],
)
def test_the_depth_leaves_room_for_activations(
    reserve: int | None, peak: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 1 << 30
    memory = MemoryInfo(
        free=50 * gib, used=50 * gib, total=100 * gib, reserved=40 * gib, allocated=40 * gib
    )
    monkeypatch.setattr(delivery, "gpu_memory_info", lambda _: memory)
    monkeypatch.setattr(delivery, "gpu_peak_active_bytes", lambda _: peak * gib)
    options = {} if reserve is None else {"activation_reserve": reserve * gib}
    made = deliver(Fetched(), **options)
    monkeypatch.setattr(made.source, "sample_bytes", 2 * gib // 3)
    made._num_batches = 1000
    assert made._measure_depth() == expected
