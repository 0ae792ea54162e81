from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.data import DataLoader, DataLoaderBuilder, LoaderConfig, SequentialSampler, TensorDataSet
from flodl.data.config import LoaderOptions

DEFAULTS = {
    "device": "cpu",
    "seed": 42,
    "shuffle": None,
    "sampler": None,
    "drop_last": True,
    "names": None,
    "transform": None,
    "device_transform": None,
    "prefetch": None,
}


def test_every_option_has_its_stated_default() -> None:
    config = LoaderConfig(batch_size=1)
    found = {field.name: getattr(config, field.name) for field in fields(config)}
    assert found == {"batch_size": 1, **DEFAULTS}


def test_keywords_fields_and_builder_calls_are_the_same_set() -> None:
    names = {field.name for field in fields(LoaderConfig)}
    calls = {name for name in vars(DataLoaderBuilder) if not name.startswith("_")}
    assert set(LoaderOptions.__annotations__) == names
    assert calls - {"build"} == names


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 0}, "batch_size=0: expected a whole number of at least 1"),
        ({"batch_size": -4}, "batch_size=-4"),
        ({"batch_size": 2.0}, "batch_size=2.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": 1, "seed": -1}, "seed=-1"),
        ({"batch_size": 1, "prefetch": -1}, "prefetch=-1: expected a whole number of at least 0"),
        ({}, "batch_size is missing"),
        ({"batch_size": 1, "batchsize": 2}, "no option 'batchsize'.*\n.*did you mean batch_size"),
        ({"batch_size": 1, "resident": True}, "no option 'resident'; it has batch_size, device"),
        ({"batch_size": 1, "device": "gpu"}, "gpu"),
        ({"batch_size": 1, "names": ["a", "b"]}, "2 names for 1 tensors"),
    ],
)
def test_unusable_options_are_refused_and_none_is_ignored(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        DataLoader(TensorDataSet(torch.zeros(4)), **options)


def test_a_sampler_beside_shuffle_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flodl"):
        LoaderConfig(batch_size=1, sampler=SequentialSampler(3), shuffle=True)
    assert "shuffle=True has no effect: the sampler SequentialSampler decides" in caplog.text


def test_a_sampler_alone_is_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    LoaderConfig(batch_size=1, sampler=SequentialSampler(3))
    assert not caplog.records
