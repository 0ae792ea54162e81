import random

import numpy
import pytest
import torch

from flodl.core.seeding import derive_seed, gpu_manual_seed_all, manual_seed, seed_everything


def test_derived_seeds_are_the_same_in_every_process():
    assert derive_seed(42, 0, "weights") == 7943599347292131832
    assert derive_seed(42, 1, "dropout") == 3681438342790444312


def test_seed_rank_and_purpose_each_change_the_stream():
    seeds = {
        derive_seed(seed, rank, purpose)
        for seed in (0, 1, 42)
        for rank in (0, 1, 2)
        for purpose in ("weights", "step", "order")
    }
    assert len(seeds) == 27
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_manual_seed_repeats_torch_numbers():
    manual_seed(7)
    first = torch.rand(3)
    manual_seed(7)
    assert torch.equal(first, torch.rand(3))


def test_seed_everything_covers_torch_random_and_numpy():
    def draw():
        return torch.rand(1).item(), random.random(), numpy.random.rand()

    seed_everything(2**40 + 3)
    first = draw()
    seed_everything(2**40 + 3)
    assert draw() == first


def test_the_gpu_seed_leaves_the_cpu_generator_alone():
    before = torch.get_rng_state()
    gpu_manual_seed_all(3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.cuda
def test_the_gpu_seed_repeats_gpu_numbers():
    gpu_manual_seed_all(3)
    first = torch.rand(4, device="cuda")
    gpu_manual_seed_all(3)
    assert torch.equal(first, torch.rand(4, device="cuda"))


def test_deterministic_mode_is_switched_on_only_when_asked():
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        seed_everything(1)
        assert not torch.are_deterministic_algorithms_enabled()
        seed_everything(1, deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
