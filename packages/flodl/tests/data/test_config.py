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
    "collate": None,
    "prefetch": None,
    "resident": None,
    "streaming": False,
    "storage_dtype": None,
    "vram_max_usage": 0.90,
    "activation_reserve": None,
    "workers": 1,
    "worker_mode": "thread",
    "timeout": None,
    "pin": False,
    "max_pinned_bytes": None,
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
        ({"batch_size": 1, "cache": True}, "no option 'cache'; it has batch_size, device"),
        ({"batch_size": 1, "workers": 0}, "workers=0: expected a whole number of at least 1"),
        ({"batch_size": 1, "worker_mode": "fork"}, "worker_mode='fork': expected \"thread\" or"),
        ({"batch_size": 1, "timeout": 0}, "timeout=0: expected seconds above 0"),
        ({"batch_size": 1, "timeout": 1, "prefetch": 0}, "timeout with prefetch=0"),
        ({"batch_size": 1, "timeout": "3"}, "timeout='3': expected seconds above 0"),
        ({"batch_size": 1, "vram_max_usage": float("nan")}, "vram_max_usage=nan: expected a numb"),
        ({"batch_size": 1, "vram_max_usage": "all"}, "vram_max_usage='all': expected a number"),
        ({"batch_size": 1, "transform": 1}, "transform=1: expected a function"),
        ({"batch_size": 1, "device_transform": 1}, "device_transform=1: expected a function"),
        ({"batch_size": 1, "collate": 5}, "collate=5: expected a function"),
        ({"batch_size": 1, "activation_reserve": -1}, "activation_reserve=-1"),
        ({"batch_size": 1, "max_pinned_bytes": 0.5}, "max_pinned_bytes=0.5"),
        ({"batch_size": 1, "resident": True, "streaming": True}, "resident=True with streaming"),
        ({"batch_size": 1, "resident": True, "collate": list}, "resident=True with collate"),
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


@pytest.mark.parametrize(("given", "used"), [(0.2, 0.5), (1.0, 0.99), (0.7, 0.7)])
def test_the_cap_on_gpu_memory_is_kept_in_range_and_that_is_said(
    given: float, used: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "flodl"):
        assert LoaderConfig(batch_size=1, vram_max_usage=given).vram_max_usage == used
    assert caplog.messages == ([] if given == used else [f"vram_max_usage={given}: using {used}"])
