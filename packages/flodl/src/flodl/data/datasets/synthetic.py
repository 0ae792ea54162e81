"""Made-up data whose best possible result is known: for benchmarks and for checking a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from flodl.core.errors import ConfigError
from flodl.data.dataset import InMemoryDataSet
from flodl.data.sampler import check_seed, whole_number


@final
@dataclass(frozen=True, eq=False)
class Synthetic(InMemoryDataSet):
    """``inputs`` and ``targets`` with the loss that the true function has on them.

    ``best_loss`` is the mean squared error for numbers as targets, the share of wrong answers for
    classes.
    """

    inputs: Tensor
    targets: Tensor
    best_loss: float

    @property
    def names(self) -> tuple[str, ...]:
        """``input`` and ``target``."""
        return ("input", "target")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The inputs and the targets."""
        return (self.inputs, self.targets)


def linear_mapping(
    n: int, inputs: int, outputs: int, *, noise: float = 0.0, seed: int = 42
) -> Synthetic:
    """Return ``n`` rows of a linear mapping with normal inputs and weights, and noise on top.

    The weights have unit variance over ``inputs``, so targets have about unit variance.
    """
    generator = _generator(seed, n=n, inputs=inputs, outputs=outputs)
    x = torch.randn(n, inputs, generator=generator)
    weight = torch.randn(inputs, outputs, generator=generator) / inputs**0.5
    return _with_noise(x, x @ weight, noise, generator)


def teacher_mlp(
    n: int, inputs: int, hidden: int, outputs: int, *, noise: float = 0.0, seed: int = 42
) -> Synthetic:
    """Return ``n`` rows of a random network with one hidden layer of ``tanh``, and noise on top."""
    generator = _generator(seed, n=n, inputs=inputs, hidden=hidden, outputs=outputs)
    x = torch.randn(n, inputs, generator=generator)
    first = torch.randn(inputs, hidden, generator=generator) / inputs**0.5
    second = torch.randn(hidden, outputs, generator=generator) / hidden**0.5
    return _with_noise(x, torch.tanh(x @ first) @ second, noise, generator)


def gaussian_blobs(
    n: int, classes: int, features: int, *, spread: float = 1.0, seed: int = 42
) -> Synthetic:
    """Return ``n`` points around one center for each class; the nearest center is the best answer.

    Args:
        n: Points, as evenly over the classes as they go.
        classes: Number of centers, drawn with unit deviation.
        features: Numbers of a point.
        spread: Deviation of the points around their center.
        seed: Base of the draws.
    """
    generator = _generator(seed, n=n, classes=classes, features=features)
    if not spread > 0:
        raise ConfigError(f"spread={spread!r}: expected a number above 0")
    centers = torch.randn(classes, features, generator=generator)
    labels = torch.arange(n) % classes
    points = centers[labels] + spread * torch.randn(n, features, generator=generator)
    nearest = torch.cdist(points, centers).argmin(1)
    return Synthetic(points, labels, float((nearest != labels).float().mean()))


def copy_task(n: int, seq_len: int, symbols: int, *, delay: int = 1, seed: int = 42) -> Synthetic:
    """Return ``n`` random sequences to repeat ``delay`` steps later; symbol 0 stands before that.

    A network that remembers ``delay`` steps makes no mistakes.
    """
    generator = _generator(seed, n=n, seq_len=seq_len, symbols=symbols - 1)
    if not 0 <= delay < seq_len:
        raise ConfigError(f"delay={delay}: expected 0 to {seq_len - 1}, less than seq_len")
    inputs = torch.randint(1, symbols, (n, seq_len), generator=generator)
    targets = torch.zeros_like(inputs)
    targets[:, delay:] = inputs[:, : seq_len - delay]
    return Synthetic(inputs, targets, 0.0)


def _generator(seed: int, **sizes: int) -> torch.Generator:
    for name, size in sizes.items():
        whole_number(name, size, least=1)
    return torch.Generator().manual_seed(check_seed(seed))


def _with_noise(x: Tensor, exact: Tensor, noise: float, generator: torch.Generator) -> Synthetic:
    if not noise >= 0:
        raise ConfigError(f"noise={noise!r}: expected a number of at least 0")
    added = noise * torch.randn(exact.shape, generator=generator)
    return Synthetic(x, exact + added, float(added.square().mean()))
