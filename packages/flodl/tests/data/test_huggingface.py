"""Tables of Hugging Face: against a stand-in everywhere, against the library where it is."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
import torch

from flodl.core.errors import ConfigError, SampleError
from flodl.data import DataLoader, HfDataSet

library: Any = None
with contextlib.suppress(ImportError):  # here, as it changes the environment when imported
    import datasets as library
    import tqdm

    tqdm.tqdm.monitor_interval = 0  # a bar starts a thread that outlives it

NOT_HERE = "the Hugging Face datasets library is not installed: NOT TESTED"


class Table:
    """What is used of a ``datasets.Dataset``, over plain lists."""

    def __init__(self, columns: dict[str, list[Any]], kind: str | None = None) -> None:
        self.columns = columns
        self.format = {"type": kind}

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def with_format(self, kind: str, columns: list[str]) -> Table:
        return Table({name: self.columns[name] for name in columns}, kind)

    def __getitem__(self, indices: list[int]) -> dict[str, Any]:
        rows = {name: [column[i] for i in indices] for name, column in self.columns.items()}
        if self.format["type"] is None:
            return rows
        return {name: self._formatted(values) for name, values in rows.items()}

    def _formatted(self, values: list[Any]) -> Any:
        try:
            return torch.tensor(values)
        except ValueError:
            return values


COLUMNS = {
    "x": [[float(n), 0.5] for n in range(6)],
    "label": list(range(6)),
    "text": list("abcdef"),
    "ragged": [[1] * n for n in range(1, 7)],
}


def table() -> Any:
    return Table(COLUMNS)


@pytest.fixture(params=["stand-in", "library"])
def made(request: pytest.FixtureRequest) -> Any:
    if request.param == "stand-in":
        return table()
    if library is None:
        pytest.skip(NOT_HERE)
    return library.Dataset.from_dict(COLUMNS)


def test_chosen_columns_become_batches_by_name(made: Any) -> None:
    loader = DataLoader.from_hf(made, 4, ["x", "label"], shuffle=False, drop_last=False)
    batches = list(loader)
    assert batches[0].names == ("x", "label")
    assert [batch["label"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5]]
    assert batches[1]["x"].tolist() == [[4.0, 0.5], [5.0, 0.5]]
    assert HfDataSet(made, ["label"]).is_fixed
    assert HfDataSet(made, ["label"])[2]["label"].item() == 2


def test_texts_and_ragged_columns_need_a_choice_or_a_collate(made: Any) -> None:
    with pytest.raises(SampleError, match="column 'text' is no tensor: its rows are str"):
        DataLoader.from_hf(made, 4, ["text", "ragged"])

    def pad(samples: list[Any]) -> dict[str, torch.Tensor]:
        rows = [torch.as_tensor(sample["ragged"]) for sample in samples]
        return {"ragged": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)}

    loader = DataLoader.from_hf(made, 3, ["ragged"], collate=pad, shuffle=False)
    assert [list(batch["ragged"].shape) for batch in loader] == [[3, 3], [3, 6]]


def test_unknown_columns_are_named(made: Any) -> None:
    with pytest.raises(ConfigError, match="no 'image'; the set has x, label, text, ragged"):
        DataLoader.from_hf(made, 4, ["image"])


def test_a_set_with_a_transform_of_its_own_is_read_anew() -> None:
    data = HfDataSet(Table({"x": [1, 2]}, "custom"))
    assert not data.is_fixed
    assert data.get_batch([1])["x"].tolist() == [2]


def test_a_streamed_set_goes_on_by_its_own_state() -> None:
    if library is None:
        pytest.skip(NOT_HERE)

    def loader() -> Any:
        data = library.Dataset.from_dict({"label": list(range(10)), "text": list("abcdefghij")})
        return DataLoader.from_hf(data.to_iterable_dataset(), 2, ["label"])

    first = loader()
    epoch = first.epoch(0)
    assert [next(epoch)["label"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    state = json.loads(json.dumps(first.state_dict()))
    assert state["source"] is not None
    second = loader()
    second.load_state_dict(state)
    assert [batch["label"].tolist() for batch in second] == [[4, 5], [6, 7], [8, 9]]
    epoch.close()
