from __future__ import annotations

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.data import Batch, DataLoader, SequentialSampler, TensorDataSet

DATA = TensorDataSet(torch.arange(10), torch.arange(10) * 2)


def doubled(batch: Batch) -> Batch:
    return batch.replace({"a": batch["a"] * 2})


def negated(batch: Batch) -> Batch:
    return batch.replace({"a": -batch["a"]})


def rows(loader: DataLoader) -> list[tuple[list[int], list[int]]]:
    return [(batch["a"].tolist(), batch["b"].tolist()) for batch in loader.epoch(1)]


def test_builder_and_keywords_make_equal_loaders() -> None:
    built = (
        DataLoader.from_batch_dataset(DATA)
        .batch_size(3)
        .device("cpu")
        .seed(7)
        .shuffle(True)
        .drop_last(False)
        .names(["a", "b"])
        .transform(doubled)
        .device_transform(negated)
        .prefetch(1)
        .build()
    )
    written = DataLoader(
        DATA,
        batch_size=3,
        device="cpu",
        seed=7,
        shuffle=True,
        drop_last=False,
        names=["a", "b"],
        transform=doubled,
        device_transform=negated,
        prefetch=1,
    )
    assert built.summary() == written.summary()
    assert rows(built) == rows(written)


def test_the_builder_takes_a_sampler() -> None:
    loader = DataLoader.from_dataset(DATA).batch_size(5).sampler(SequentialSampler(10)).build()
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_builder_without_batch_size_says_so() -> None:
    with pytest.raises(ConfigError, match="batch_size is missing"):
        DataLoader.from_dataset(DATA).build()


def test_from_batch_dataset_wants_get_batch() -> None:
    with pytest.raises(TypeError, match=r"list has no get_batch\(indices\)"):
        DataLoader.from_batch_dataset([1, 2])  # type: ignore[arg-type]
