import torch
from torch import nn

from flodl_hf.weights.blank import without_values


def test_modules_have_shapes_and_no_memory():
    with without_values():
        module = nn.Sequential(nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 3), nn.LayerNorm(3))
    assert all(p.is_meta for p in module.parameters())
    assert module[1].weight.shape == (3, 4)


def test_values_are_drawn_for_tensors_with_memory():
    torch.manual_seed(0)
    with without_values():
        there = torch.zeros(100, device="cpu")
        nn.init.normal_(there)
        assert there.std() > 0.5
        there.uniform_(4, 5)
        assert there.min() >= 4


def test_nothing_of_it_is_left_after_the_block():
    with without_values():
        pass
    assert nn.Linear(3, 3).weight.abs().sum() > 0
