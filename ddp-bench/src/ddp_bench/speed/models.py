"""The ten models of the speed suite by name, in full and in small dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ddp_bench.errors import UsageError
from ddp_bench.speed import plain
from ddp_bench.speed.graphs import graph_of
from flodl.graph import Graph

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """One model in one size.

    Attributes:
        make: Makes the plain model.
        inputs: Shape of a batch.
        targets: Shape of its targets; ``None`` for the inputs themselves.
        vocabulary: Number of tokens, 0 for real numbers.
    """

    make: Callable[[], nn.Module]
    inputs: Shape
    targets: Shape | None
    vocabulary: int = 0

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random inputs and targets."""
        if self.vocabulary:
            tokens = [
                torch.randint(self.vocabulary, self.inputs, generator=generator) for _ in range(2)
            ]
            return tokens[0], tokens[1]
        inputs = torch.randn(self.inputs, generator=generator)
        if self.targets is None:
            return inputs, inputs
        return inputs, torch.randn(self.targets, generator=generator)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedModel:
    """One of the ten.

    Attributes:
        name: What reports call it.
        tier: 1 for what everybody has, 2 for what the builder is for.
        params: Parameters in full size.
        full: The published size.
        small: The size for a CPU.
        learning_rate: Of Adam.
        is_extra: Whether it is reported beside the ten, without being one of them.
    """

    name: str
    tier: int
    params: int
    full: Size
    small: Size
    learning_rate: float = 1e-3
    is_extra: bool = False

    @property
    def has_autotune(self) -> bool:
        """Return whether cuDNN may try its algorithms; the recurrent models go without."""
        return not self.name.endswith("_seq")

    @property
    def loss_rtol(self) -> float:
        """Return how far losses of equal steps may lie apart: convolutions sum in any order."""
        return 2e-3 if self.name.startswith("conv") else 1e-4

    def pair(self, *, is_small: bool, seed: int = 0) -> tuple[nn.Module, Graph]:
        """Return the plain model and the graph, with equal weights."""
        size = self.small if is_small else self.full
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = size.make()
        return model, graph_of(model)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return cross-entropy for tokens, else the mean squared error."""
        if self.full.vocabulary:
            return functional.cross_entropy(output.flatten(0, -2), target.flatten())
        return functional.mse_loss(output, target)


def _mlp(width: int, inner: int) -> nn.Module:
    layers: list[nn.Module] = []
    for size in (width, inner, inner, inner):
        layers += [nn.Linear(size, inner), nn.GELU(), nn.LayerNorm(inner)]
    return plain.Chain([*layers, nn.Linear(inner, width)])


def _convnet(channels: tuple[int, ...], classes: int = 100) -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for number, width in enumerate(channels):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        if number < 4:
            layers.append(nn.MaxPool2d(2))
        before = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return plain.Chain(layers)


def _autoencoder(channels: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for width in channels:
        layers += [nn.Conv2d(before, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    for width in channels[-2::-1]:
        layers += [nn.ConvTranspose2d(before, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return plain.Chain([*layers, nn.ConvTranspose2d(before, 3, 4, 2, 1), nn.Tanh()])


def _vectors(make: Callable[[], nn.Module], batch: int, width: int) -> Size:
    return Size(make=make, inputs=(batch, width), targets=(batch, width))


def _images(make: Callable[[], nn.Module], batch: int, side: int, targets: Shape | None) -> Size:
    return Size(make=make, inputs=(batch, 3, side, side), targets=targets)


def _sequences(make: Callable[[], nn.Module], batch: int, steps: int, width: int) -> Size:
    return Size(make=make, inputs=(batch, steps, width), targets=(batch, width))


def _tokens(make: Callable[[], nn.Module], batch: int, tokens: int, vocabulary: int) -> Size:
    return Size(make=make, inputs=(batch, tokens), targets=(batch, tokens), vocabulary=vocabulary)


_FULL_WIDTHS = (64, 128, 256, 512, 512)
_SMALL_WIDTHS = (16, 32, 64, 128, 128)

MODELS: tuple[SpeedModel, ...] = (
    SpeedModel(
        name="mlp",
        tier=1,
        params=16_802_816,
        full=_vectors(lambda: _mlp(1024, 2048), 256, 1024),
        small=_vectors(lambda: _mlp(256, 512), 64, 256),
    ),
    SpeedModel(
        name="convnet",
        tier=1,
        params=3_965_028,
        full=_images(lambda: _convnet(_FULL_WIDTHS), 128, 64, (128, 100)),
        small=_images(lambda: _convnet(_SMALL_WIDTHS), 16, 32, (16, 100)),
    ),
    SpeedModel(
        name="gru_seq",
        tier=1,
        params=1_314_048,
        full=_sequences(lambda: plain.Gru(256, 512), 128, 50, 256),
        small=_sequences(lambda: plain.Gru(64, 128), 32, 20, 64),
    ),
    SpeedModel(
        name="transformer",
        tier=1,
        params=21_071_872,
        full=_tokens(lambda: plain.Transformer(8192, 512, 2048, 4, 128), 32, 128, 8192),
        small=_tokens(lambda: plain.Transformer(1024, 128, 512, 2, 64), 4, 64, 1024),
        learning_rate=1e-4,
    ),
    SpeedModel(
        name="lstm_seq",
        tier=1,
        params=3_809_536,
        full=_sequences(lambda: plain.Lstm(256, 512), 128, 50, 256),
        small=_sequences(lambda: plain.Lstm(64, 128), 32, 20, 64),
    ),
    SpeedModel(
        name="conv_autoenc",
        tier=1,
        params=5_515_395,
        full=_images(lambda: _autoencoder(_FULL_WIDTHS[:4]), 64, 64, None),
        small=_images(lambda: _autoencoder(_SMALL_WIDTHS[:4]), 8, 32, None),
    ),
    SpeedModel(
        name="residual_tower",
        tier=2,
        params=14_718_976,
        full=_vectors(lambda: plain.Tower(1024, 12), 256, 1024),
        small=_vectors(lambda: plain.Tower(256, 12), 64, 256),
    ),
    SpeedModel(
        name="gated_routing",
        tier=2,
        params=2_638_856,
        full=_vectors(lambda: plain.Gated(512, 8), 256, 512),
        small=_vectors(lambda: plain.Gated(128, 8), 64, 128),
    ),
    SpeedModel(
        name="iterative_refine",
        tier=2,
        params=3_152_896,
        full=_vectors(lambda: plain.Refine(1024, 8), 256, 1024),
        small=_vectors(lambda: plain.Refine(256, 8), 64, 256),
    ),
    SpeedModel(
        name="feedback_fixed",
        tier=2,
        params=790_016,
        full=_vectors(lambda: plain.Refine(512, 10), 128, 512),
        small=_vectors(lambda: plain.Refine(128, 10), 32, 128),
    ),
)
BY_NAME = {model.name: model for model in MODELS}

EXTRAS: tuple[SpeedModel, ...] = (
    SpeedModel(
        name="feedback_loop",
        tier=2,
        params=790_529,
        full=_vectors(lambda: plain.Feedback(512, 10), 128, 512),
        small=_vectors(lambda: plain.Feedback(128, 10), 32, 128),
        is_extra=True,
    ),
    SpeedModel(
        name="noop",
        tier=1,
        params=1,
        full=_vectors(plain.Scale, 1, 1),
        small=_vectors(plain.Scale, 1, 1),
        is_extra=True,
    ),
)


def find(name: str) -> SpeedModel:
    """Return the model of this name, one of the ten or an extra one.

    Raises:
        UsageError: There is none.
    """
    for model in (*MODELS, *EXTRAS):
        if model.name == name:
            return model
    known = ", ".join(model.name for model in (*MODELS, *EXTRAS))
    raise UsageError(f"model {name!r}: there are {known}")
