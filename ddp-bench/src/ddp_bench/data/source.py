"""From a set-up's data to flodl's data sets, each loaded once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ddp_bench.definition import DataFacts, DataSpec
from ddp_bench.hashing import tensor_bytes
from flodl.data import InMemoryDataSet, datasets

Source = Literal["mini", "real"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskData:
    """The data of a set-up, loaded."""

    train: InMemoryDataSet
    test: InMemoryDataSet
    facts: DataFacts


class DataSource:
    """Loads data sets and keeps them for the next cell.

    Args:
        source: The small sets inside flodl, or the published ones.
        root: Folder of the published ones; ``None``: flodl's own choice.
    """

    def __init__(self, source: Source, root: Path | None = None) -> None:
        self._source = source
        self._root = root
        self._loaded: dict[DataSpec, TaskData] = {}

    def load(self, spec: DataSpec) -> TaskData:
        """Return the training and the test part.

        Raises:
            DataError: A file is missing or damaged.
        """
        if spec not in self._loaded:
            load = self._mnist if spec.name == "mnist" else self._shakespeare
            self._loaded[spec] = load(spec)
        return self._loaded[spec]

    def _mnist(self, spec: DataSpec) -> TaskData:
        train, test = (
            datasets.load("mnist", split=split, source=self._source, root=self._root)
            for split in ("train", "test")
        )
        return _task(spec, train, test, vocabulary=None)

    def _shakespeare(self, spec: DataSpec) -> TaskData:
        assert spec.seq_len is not None
        train, test = (
            datasets.load(
                "shakespeare",
                split=split,
                source=self._source,
                root=self._root,
                seq_len=spec.seq_len,
                max_chars=spec.characters,
            )
            for split in ("train", "test")
        )
        return _task(spec, train, test, vocabulary=train.vocab_size)


def _task(
    spec: DataSpec, train: InMemoryDataSet, test: InMemoryDataSet, vocabulary: int | None
) -> TaskData:
    facts = DataFacts(
        name=spec.name,
        sha256=_digest(train, test),
        n_train=len(train),
        n_test=len(test),
        vocabulary=vocabulary,
    )
    return TaskData(train=train, test=test, facts=facts)


def _digest(*parts: InMemoryDataSet) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for name, tensor in zip(part.names, part.tensors, strict=True):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor_bytes(tensor))
    return digest.hexdigest()
