"""Positions of streams, and the settings that they depend on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch

from flodl.core.errors import (
    ConfigError,
    ResumeMismatchError,
)
from flodl.data import DataLoader, StreamConfig
from flodl.data.streamstate import StreamState

DEPTHS = pytest.mark.parametrize("prefetch", [0, 1, 3])


def numbers(count: int, bad: int | None = None) -> Iterator[Any]:
    for number in range(count):
        if number == bad:
            raise RuntimeError(f"cannot read {bad}")
        yield {"x": torch.tensor(number)}


def stream(count: int = 10, batch_size: int = 2, shuffle_buffer: int = 0, **options: Any) -> Any:
    return DataLoader.from_iterable(
        lambda: numbers(count), batch_size, shuffle_buffer, **{"drop_last": False, **options}
    )


@pytest.mark.parametrize(
    ("options", "field"),
    [({"batch_size": 3}, "batch_size"), ({"seed": 1}, "seed"), ({"drop_last": True}, "drop_last")],
)
def test_a_state_of_other_settings_is_refused(options: dict[str, Any], field: str) -> None:
    first = stream()
    next(first.epoch(0))
    with pytest.raises(ResumeMismatchError, match=f"^{field}: the state was saved with"):
        stream(**options).load_state_dict(first.state_dict())
    other = stream()
    other.partition(0, 2)
    with pytest.raises(ResumeMismatchError, match="^world_size: "):
        other.load_state_dict(first.state_dict())
    with pytest.raises(ResumeMismatchError, match="^version: "):
        stream().load_state_dict({})
    with pytest.raises(ResumeMismatchError, match="^keys: "):
        stream().load_state_dict({"version": 1})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"shuffle_buffer": -1}, "shuffle_buffer=-1"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"timeout": 1, "prefetch": 0}, "timeout=1 with prefetch=0"),
        ({"suffle_buffer": 1}, "no option 'suffle_buffer'.*\n.*did you mean shuffle_buffer"),
        ({"sampler": None}, "no option 'sampler'"),
    ],
)
def test_unusable_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stream(**options)


def test_a_state_survives_json_and_holds_plain_values() -> None:
    loader = stream()
    next(loader.epoch(3))
    state = loader.state_dict()
    assert StreamState.from_dict(json.loads(json.dumps(state))) == StreamState.from_dict(state)
    assert (state["epoch"], state["batches"], state["samples"]) == (3, 1, 2)
    with pytest.raises(ResumeMismatchError, match=r"the unknown \['more'\]"):
        StreamState.from_dict({**state, "more": 1})


@pytest.mark.parametrize("options", [{"workers": -1}, {"prefetch": 0.5}, {"timeout": 0}])
def test_settings_of_the_delivery_are_checked(options: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(options))}="):
        StreamConfig(**options)


def test_every_option_of_the_delivery_has_its_stated_default() -> None:
    config = StreamConfig()
    assert {field.name: getattr(config, field.name) for field in fields(config)} == {
        "device": "cpu",
        "transform": None,
        "device_transform": None,
        "prefetch": 2,
        "workers": 0,
        "timeout": None,
        "pin": False,
    }
