from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from flodl.core.errors import ResumeMismatchError
from flodl.data.resume import LoaderState, order_crc

SAVED = LoaderState(
    epoch=2,
    batches=1,
    taken=1,
    samples_consumed=4,
    is_complete=False,
    batch_size=4,
    drop_last=True,
    seed=42,
    shuffle=True,
    dataset_length=10,
    order_crc=order_crc(torch.arange(10)),
    sampler=None,
    pending=((0, 10),),
)


def test_a_state_goes_to_plain_values_and_back() -> None:
    plain = SAVED.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert LoaderState.from_dict(plain) == SAVED


@pytest.mark.parametrize("version", [0, 2, None])
def test_another_version_is_refused(version: Any) -> None:
    with pytest.raises(ResumeMismatchError, match="version: the state has .* this flodl reads 1"):
        LoaderState.from_dict({**SAVED.to_dict(), "version": version})


def test_missing_and_unknown_keys_are_named() -> None:
    state = SAVED.to_dict()
    state["sede"] = state.pop("seed")
    with pytest.raises(
        ResumeMismatchError, match=r"lacks \['seed'\] and has the unknown \['sede'\]"
    ):
        LoaderState.from_dict(state)


@pytest.mark.parametrize("field", ["epoch", "batches", "taken", "samples_consumed"])
@pytest.mark.parametrize("value", [-1, "3", None, 1.5])
def test_counts_that_are_no_counts_are_named(field: str, value: Any) -> None:
    with pytest.raises(ResumeMismatchError, match=f"^{field}: the state has"):
        LoaderState.from_dict({**SAVED.to_dict(), field: value})


def test_only_the_order_it_was_saved_in_fits() -> None:
    SAVED.check_order(torch.arange(10))
    with pytest.raises(ResumeMismatchError, match="^order_crc: epoch 2 was in an order"):
        SAVED.check_order(torch.arange(10).flip(0))
    with pytest.raises(
        ResumeMismatchError, match="^samples_consumed: the state has 4, an epoch here has 3"
    ):
        SAVED.check_order(torch.arange(3))


def test_a_strided_order_has_the_crc_of_its_values() -> None:
    assert order_crc(torch.arange(20)[::2]) == order_crc(torch.arange(0, 20, 2))
