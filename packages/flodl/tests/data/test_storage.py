"""Samples kept and delivered in another dtype than the one they are read in."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from flodl.core.errors import ConfigError, DataWorkerError, SampleError
from flodl.data import Batch, DataLoader, Repeat, Subset, TensorDataSet

IMAGES = torch.arange(40).view(10, 4).float()
LABELS = torch.arange(10)


class Fetched:
    is_fixed = True

    def __len__(self) -> int:
        return 10

    def get_batch(self, indices: torch.Tensor) -> Any:
        return {"image": IMAGES[indices], "label": LABELS[indices]}


class Items:
    def __len__(self) -> int:
        return 10

    def get(self, index: int) -> Any:
        return {"image": IMAGES[index], "label": LABELS[index]}


DATA = TensorDataSet(image=IMAGES, label=LABELS)
SOURCES: dict[str, Any] = {
    "in memory": lambda: DATA,
    "subset": lambda: Subset(Repeat(DATA, 20), range(10)),
    "batches": Fetched,
    "items": Items,
}


def stacked(samples: list[Any]) -> Any:
    parts = [list(s.values()) if isinstance(s, dict) else list(s) for s in samples]
    return {
        "image": torch.stack([part[0] for part in parts]),
        "label": torch.stack([part[1] for part in parts]),
    }


WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "resident": {"resident": True},
    "streaming": {"streaming": True},
    "processes": {"worker_mode": "process"},
    "collate": {"collate": stacked},
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("way", WAYS)
def test_batches_have_the_storage_dtype_in_every_mode(source: str, way: str) -> None:
    options = {"names": ["image", "label"], **WAYS[way]}
    loader = DataLoader(
        SOURCES[source](), batch_size=5, shuffle=False, storage_dtype=torch.bfloat16, **options
    )
    first = next(loader.epoch(0))
    assert (first["image"].dtype, first["label"].dtype) == (torch.bfloat16, torch.int64)
    assert torch.equal(first["image"], IMAGES[:5].bfloat16())
    assert first["label"].tolist() == list(range(5))
    loader.close()


def test_tensors_are_chosen_by_name_and_converted_back_on_the_device() -> None:
    def unit(batch: Batch) -> Batch:
        return batch.replace({"image": batch["image"].float() / 255})

    loader = DataLoader(
        Fetched(),
        batch_size=5,
        shuffle=False,
        resident=True,
        storage_dtype={"image": torch.uint8, "label": torch.int32},
        device_transform=unit,
    )
    batch = next(loader.epoch(0))
    assert torch.equal(batch["image"], IMAGES[:5] / 255)
    assert batch["label"].dtype == torch.int32


def test_a_set_on_a_device_takes_as_many_bytes_as_it_is_stored_in() -> None:
    options: dict[str, Any] = {"batch_size": 5, "resident": True, "device": "meta"}
    whole = DataLoader(Fetched(), **options)
    small = DataLoader(Fetched(), storage_dtype={"image": torch.uint8}, **options)
    for loader, size in ((whole, 10 * (16 + 8)), (small, 10 * (4 + 8))):
        assert loader.store is not None
        assert sum(tensor.nbytes for tensor in loader.store.tensors) == size
        assert f"({size} B)" in loader.summary()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.5, torch.uint8),
        (-1.0, torch.uint8),
        (256.0, torch.uint8),
        (1e6, torch.float16),
        (float("nan"), torch.int64),
        (2.0**31, torch.int32),
    ],
)
def test_a_value_that_the_dtype_cannot_hold_is_an_error_and_is_named(
    value: float, dtype: torch.dtype
) -> None:
    values = torch.zeros(10, 2)
    values[7, 1] = value
    loader = DataLoader(
        TensorDataSet(x=values), batch_size=5, shuffle=False, storage_dtype={"x": dtype}
    )
    epoch = loader.epoch(0)
    next(epoch)
    with pytest.raises(DataWorkerError, match=f"storage_dtype={dtype} of 'x': it cannot hold"):
        next(epoch)
    values[0, 0] = value
    with pytest.raises(SampleError, match="it cannot hold"):
        DataLoader(TensorDataSet(x=values), batch_size=5, storage_dtype={"x": dtype})


def test_labels_that_do_not_fit_are_not_wrapped_around() -> None:
    data = TensorDataSet(label=torch.tensor([0, 300]))
    loader = DataLoader(data, batch_size=2, storage_dtype={"label": torch.uint8})
    with pytest.raises(DataWorkerError, match="cannot hold 300"):
        next(loader.epoch(0))


def test_infinities_and_rounding_are_kept_by_floating_point_dtypes() -> None:
    data = TensorDataSet(x=torch.tensor([1e-3, float("inf"), float("nan")]))
    loader = DataLoader(data, batch_size=3, shuffle=False, storage_dtype=torch.float16)
    found = next(loader.epoch(0))["x"]
    assert torch.equal(found.nan_to_num(7), data.tensors[0].half().nan_to_num(7))


def test_the_device_s_copy_is_checked_too(caplog: pytest.LogCaptureFixture) -> None:
    values = torch.zeros(10)
    values[4] = 0.25

    class Values:
        is_fixed = True

        def __len__(self) -> int:
            return 10

        def get_batch(self, indices: torch.Tensor) -> Any:
            return {"x": values[indices]}

    with (
        caplog.at_level(logging.WARNING, "flodl"),
        pytest.raises(DataWorkerError, match=r"whole set, samples 0 to 9: SampleError: storage_d"),
    ):
        DataLoader(Values(), batch_size=5, resident=True, storage_dtype={"x": torch.int8})


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        ("uint8", "storage_dtype='uint8': expected a torch.dtype"),
        ({"image": "uint8"}, "expected a torch.dtype, or a dict"),
        ({"picture": torch.uint8}, "storage_dtype of 'picture': no such tensor; names: image, lab"),
    ],
)
def test_dtypes_that_are_none_are_refused(dtype: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DataLoader(DATA, batch_size=2, storage_dtype=dtype)
