"""Settings of data that a function makes, and the checks of what it gave."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from flodl.core.errors import ConfigError, DataError
from flodl.data import EpochFnConfig
from flodl.data.epoch_data import Made


def test_every_option_has_its_stated_default() -> None:
    config = EpochFnConfig(batch_size=4)
    assert {field.name: getattr(config, field.name) for field in fields(config)} == {
        "batch_size": 4,
        "device": "cpu",
        "seed": 42,
        "shuffle": True,
        "drop_last": True,
        "names": None,
        "device_transform": None,
        "vram_max_usage": 0.90,
    }


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": 1, "seed": -1}])
def test_values_outside_their_range_are_refused(options: Any) -> None:
    with pytest.raises(ConfigError, match="expected a whole number"):
        EpochFnConfig(**options)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (torch.zeros(3, 2), ("0",)),
        ([torch.zeros(3), np.zeros(3)], ("0", "1")),
        ({"x": torch.zeros(3, requires_grad=True)}, ("x",)),
    ],
)
def test_tensors_are_taken_in_any_form(given: Any, names: tuple[str, ...]) -> None:
    made = Made(5, given)
    assert (made.epoch, made.rows, made.names) == (5, 3, names)
    assert not any(tensor.requires_grad for tensor in made.tensors)
    assert made.n_bytes == sum(tensor.nbytes for tensor in made.tensors)
    assert [shape[0] for _, shape in made.layout] == [3] * len(names)


@pytest.mark.parametrize(
    "given", [[], torch.zeros(0, 2), torch.tensor(1), [torch.zeros(2), torch.zeros(3)]]
)
def test_what_has_no_rows_or_unequal_ones_is_refused(given: Any) -> None:
    with pytest.raises(DataError, match="for epoch 2: expected one or more tensors with as many"):
        Made(2, given)
