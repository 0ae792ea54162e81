from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler
from torch.utils.data import SequentialSampler as TorchSequential

from flodl.core.errors import ConfigError, SamplerError
from flodl.data import (
    BlockShuffleSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataSet,
    WeightedSampler,
)
from flodl.data.sampler import _splitmix64, as_sampler, checked_order, mix

GOLDEN_MIX = 6332618229526065668
GOLDEN = [[4, 1, 2, 0, 9, 6, 3, 8, 7, 5], [7, 1, 5, 8, 2, 6, 4, 3, 9, 0]]
GOLDEN_CRC = 195537690  # of the order of 60,000 samples, seed 42, epoch 3

EPOCHS = st.integers(0, 10**6)
SEEDS = st.integers(0, 2**63 - 1)


class Fixed:
    """A sampler that gives what it was told to give."""

    def __init__(self, length: int, found: Any) -> None:
        self._length = length
        self._found = found

    def __len__(self) -> int:
        return self._length

    def indices(self, epoch: int) -> Any:
        return self._found


def test_splitmix64_gives_the_published_first_outputs_of_seed_zero() -> None:
    gamma = 0x9E3779B97F4A7C15
    outputs = [_splitmix64(gamma * step % 2**64) for step in range(3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_random_orders_have_their_golden_values() -> None:
    assert mix(42, 0) == GOLDEN_MIX
    assert RandomSampler(10, seed=42).indices(0).tolist() == GOLDEN[0]
    assert RandomSampler(10, seed=42).indices(1).tolist() == GOLDEN[1]
    large = RandomSampler(60_000, seed=42).indices(3)
    assert zlib.crc32(large.numpy().tobytes()) == GOLDEN_CRC


@given(SEEDS, EPOCHS)
def test_the_next_epoch_is_not_the_next_seed(seed: int, epoch: int) -> None:
    assert mix(seed, epoch + 1) != mix(seed + 1, epoch)


@given(st.integers(0, 300), SEEDS, EPOCHS)
def test_random_and_block_orders_are_permutations_and_repeatable(
    n: int, seed: int, epoch: int
) -> None:
    for sampler in (RandomSampler(n, seed), BlockShuffleSampler(n, 7, seed)):
        order = sampler.indices(epoch)
        assert sorted(order.tolist()) == list(range(n))
        assert torch.equal(order, sampler.indices(epoch))


def test_epochs_differ_from_each_other() -> None:
    for sampler in (RandomSampler(50), BlockShuffleSampler(50, 5), WeightedSampler([1.0] * 50)):
        assert not torch.equal(sampler.indices(0), sampler.indices(1))


def test_the_global_generator_neither_decides_nor_moves() -> None:
    torch.manual_seed(1)
    first = RandomSampler(20).indices(0)
    state = torch.get_rng_state()
    RandomSampler(20).indices(1)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, RandomSampler(20).indices(0))


def test_sequential_is_the_order_of_the_data_set() -> None:
    assert SequentialSampler(4).indices(9).tolist() == [0, 1, 2, 3]


@given(st.integers(1, 200), st.integers(1, 50))
def test_blocks_stay_together(n: int, block: int) -> None:
    owners = BlockShuffleSampler(n, block).indices(0) // block
    changes = int((owners[1:] != owners[:-1]).sum())
    assert changes + 1 == -(-n // block)


def test_blocks_are_shuffled_inside_as_well() -> None:
    order = BlockShuffleSampler(100, 50).indices(0)
    assert not torch.equal(order[:50], order[:50].sort().values)


def test_weights_decide_how_often_a_sample_is_drawn() -> None:
    draws = WeightedSampler([0.0, 1.0, 3.0, 0.0], num_samples=4000).indices(0)
    counts = torch.bincount(draws, minlength=4)
    assert counts[0] == counts[3] == 0
    assert abs(int(counts[2]) - 3000) < 150  # more than five standard deviations


def test_without_replacement_no_sample_is_drawn_twice() -> None:
    weights = torch.tensor([1.0, 0.0, 2.0, 5.0])
    for epoch in range(20):
        draws = WeightedSampler(weights, 3, replacement=False).indices(epoch)
        assert sorted(draws.tolist()) == [0, 2, 3]


def test_without_replacement_heavy_samples_come_first_more_often() -> None:
    sampler = WeightedSampler([1.0, 4.0], 1, replacement=False)
    heavy = sum(int(sampler.indices(epoch)) for epoch in range(1000))
    assert abs(heavy - 800) < 70  # more than five standard deviations


@pytest.mark.parametrize(
    "weights", [[], [0.0], [-1.0, 2.0], [float("nan")], [float("inf")], [[1.0]]]
)
def test_unusable_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="expected one finite weight"):
        WeightedSampler(weights)


def test_more_draws_than_positive_weights_are_refused_without_replacement() -> None:
    with pytest.raises(ConfigError, match="only 1 samples have a weight above 0"):
        WeightedSampler([1.0, 0.0], replacement=False)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "1"])
def test_seeds_outside_their_range_are_refused(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed="):
        RandomSampler(3, seed)


def test_a_block_of_no_samples_is_refused() -> None:
    with pytest.raises(ConfigError, match="block=0: expected a whole number of at least 1"):
        BlockShuffleSampler(10, 0)


def test_built_in_samplers_fit_the_protocol() -> None:
    assert isinstance(RandomSampler(3), Sampler)
    assert as_sampler(sampler := SequentialSampler(3)) is sampler
    with pytest.raises(TypeError, match="expected __len__ and indices"):
        as_sampler([1, 2])  # type: ignore[arg-type]


def test_torch_samplers_are_told_the_epoch() -> None:
    data = TensorDataSet(torch.arange(8))
    torch_sampler = DistributedSampler(data, num_replicas=2, rank=0, shuffle=True, seed=3)
    sampler = as_sampler(torch_sampler)
    assert len(sampler) == 4
    first, second = (checked_order(sampler, epoch, 8) for epoch in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(first, checked_order(sampler, 0, 8))


def test_a_torch_sampler_of_batches_is_refused() -> None:
    batches = BatchSampler(TorchSequential(range(5)), 2, drop_last=False)
    with pytest.raises(SamplerError, match="sampler of samples, not of batches"):
        checked_order(as_sampler(batches), 0, 5)  # type: ignore[arg-type]


def test_a_torch_sampler_without_length_is_refused() -> None:
    class Endless(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(SamplerError, match="Endless has no length"):
        len(as_sampler(Endless()))


@pytest.mark.parametrize(
    "found", [[2, 0], np.array([2, 0]), torch.tensor([2, 0], dtype=torch.int32)]
)
def test_orders_may_be_lists_arrays_or_tensors_and_shorter_than_the_set(found: Any) -> None:
    order = checked_order(Fixed(2, found), 0, 3)
    assert (order.dtype, order.tolist()) == (torch.int64, [2, 0])


@pytest.mark.parametrize(
    ("length", "found", "says"),
    [
        (2, [0], r"has the shape \[1\]: len\(sampler\) is 2"),
        (2, [[0, 1]], r"has the shape \[1, 2\]"),
        (2, [0, 3], r"gave index 3: the data set has the indices \[0, 3\)"),
        (2, [0, -1], "gave index -1"),
        (2, [0.0, 1.0], "gave torch.float32: expected whole numbers"),
        (2, [True, False], "gave torch.bool"),
        (2, ["a", "b"], "expected whole numbers, one for each sample"),
    ],
)
def test_orders_that_do_not_fit_are_refused(length: int, found: Any, says: str) -> None:
    with pytest.raises(SamplerError, match=says):
        checked_order(Fixed(length, found), 0, 3)


def test_an_empty_order_is_sound() -> None:
    assert checked_order(Fixed(0, []), 0, 3).tolist() == []
