"""Small models with their optimizers, and files of them."""

import pytest
import torch
from torch import nn

from flodl import optim

SEVEN = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "RAdam", "NAdam")
SETTINGS = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.5, "centered": True}}


class Run:
    """A model in training whose batches depend on the step alone."""

    def __init__(self, kind, *, groups=1, named=True, seed=0, lr=0.1):
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        layers = [self.model] if groups == 1 else [self.model[0], self.model[2]]
        builder = getattr(optim, kind).with_groups(**SETTINGS.get(kind, {}))
        for index, layer in enumerate(layers):
            parts = layer if named is False else list(self.named(layer))
            builder.group(parts if named else list(layer.parameters()), lr / (index + 1))
        self.optimizer = builder.build()
        self.steps = 0

    def named(self, layer):
        inside = {id(p) for p in layer.parameters()}
        return [(name, p) for name, p in self.model.named_parameters() if id(p) in inside]

    def train(self, steps):
        for _ in range(steps):
            generator = torch.Generator().manual_seed(self.steps)
            x = torch.randn(8, 3, generator=generator)
            self.optimizer.zero_grad()
            self.model(x).square().mean().backward()
            self.optimizer.step()
            self.steps += 1
        return self

    def copy_weights(self, other):
        self.model.load_state_dict(other.model.state_dict())
        self.steps = other.steps
        return self

    def weights(self):
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def state(self):
        return [
            dict(self.optimizer.state.get(p, {}).items())
            for group in self.optimizer.param_groups
            for p in group["params"]
        ]


def same(left, right):
    """Whether two nests of maps, lists and tensors are equal bit for bit."""
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and left.dtype == right.dtype
            and torch.equal(left, right)
        )
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.fixture
def run():
    return Run


@pytest.fixture
def equal():
    return same


@pytest.fixture
def small(tmp_path):
    """A small state file of an Adam optimizer after two steps, its bytes, and its maker."""
    from flodl.checkpoint.optim import save_state_file

    trained = Run("Adam").train(2)
    path = tmp_path / "small.optim"
    save_state_file(trained.optimizer, path)
    return path
