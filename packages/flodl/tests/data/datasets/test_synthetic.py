from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.data.datasets import copy_task, gaussian_blobs, linear_mapping, teacher_mlp


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: linear_mapping(40, 3, 2, noise=0.1, seed=seed),
        lambda seed: teacher_mlp(40, 3, 5, 2, noise=0.1, seed=seed),
        lambda seed: gaussian_blobs(40, 3, 2, seed=seed),
        lambda seed: copy_task(40, 6, 4, seed=seed),
    ],
    ids=["linear", "teacher", "blobs", "copy"],
)
def test_a_seed_gives_the_same_data_and_another_seed_others(make: Any) -> None:
    first, again, other = make(1), make(1), make(2)
    assert len(first) == 40
    assert first.names == ("input", "target")
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_least_squares_reach_the_best_loss_of_a_linear_mapping(noise: float) -> None:
    data = linear_mapping(2000, 5, 3, noise=noise)
    solution = torch.linalg.lstsq(data.inputs, data.targets).solution
    loss = (data.inputs @ solution - data.targets).square().mean()
    assert data.best_loss == pytest.approx(noise**2, rel=0.1)
    assert loss == pytest.approx(data.best_loss, abs=max(1e-9, 0.01 * data.best_loss))


def test_a_network_without_noise_has_no_best_loss_and_bounded_targets() -> None:
    data = teacher_mlp(500, 4, 16, 2)
    assert data.best_loss == 0.0
    assert 0.01 < data.targets.var() < 4


def test_the_nearest_center_errs_more_the_wider_the_spread() -> None:
    tight = gaussian_blobs(600, 4, 3, spread=0.05)
    wide = gaussian_blobs(600, 4, 3, spread=2.0)
    assert tight.best_loss < 0.05 < wide.best_loss < 0.75
    assert tight.targets.bincount().tolist() == [150] * 4


def test_symbols_come_back_after_the_delay() -> None:
    data = copy_task(9, 7, 5, delay=2)
    assert torch.equal(data.targets[:, 2:], data.inputs[:, :-2])
    assert data.targets[:, :2].eq(0).all()
    assert data.inputs.min() >= 1
    assert data.inputs.max() <= 4
    assert torch.equal(copy_task(9, 7, 5, delay=0).targets, copy_task(9, 7, 5, delay=0).inputs)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: linear_mapping(0, 3, 2), "n=0"),
        (lambda: linear_mapping(3, 3, 2, noise=-1), "noise=-1"),
        (lambda: gaussian_blobs(3, 3, 2, spread=0), "spread=0"),
        (lambda: copy_task(3, 3, 1), "symbols=0"),
        (lambda: copy_task(3, 3, 2, delay=3), "delay=3: expected 0 to 2"),
    ],
)
def test_unusable_sizes_are_refused(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
