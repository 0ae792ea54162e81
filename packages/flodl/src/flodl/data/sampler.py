"""The order in which an epoch visits the samples, the same for a seed and epoch everywhere."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import Sampler as TorchSampler

from flodl.core.errors import ConfigError, SamplerError
from flodl.core.seeding import SEED_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    AnySampler: TypeAlias = "Sampler | TorchSampler[int]"

_MASK = 2**64 - 1


@runtime_checkable
class Sampler(Protocol):
    """Order of the samples of each epoch.

    ``indices`` must give the same answer for the same epoch however often it is asked. A sampler
    may visit fewer samples than the data set has, and some of them more than once. One that keeps
    state between epochs also has ``state_dict`` and ``load_state_dict``.
    """

    def __len__(self) -> int: ...

    def indices(self, epoch: int, /) -> Tensor | Sequence[int]:
        """Return ``len(self)`` sample indices for one epoch."""
        ...


def _splitmix64(value: int) -> int:
    """One step of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64-bit numbers."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix(seed: int, epoch: int) -> int:
    """Return a 64-bit seed for one epoch: splitmix64 over the seed, then over the epoch.

    Adding the two would make epoch 1 of seed 42 the same as epoch 0 of seed 43.
    """
    return _splitmix64(_splitmix64(seed & _MASK) ^ (epoch & _MASK))


def _generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(mix(seed, epoch))


def seeded_permutation(count: int, seed: int, epoch: int) -> Tensor:
    """Return a random order of ``range(count)`` that depends on ``(seed, epoch)`` alone."""
    return torch.randperm(count, generator=_generator(seed, epoch))


def whole_number(name: str, value: object, *, least: int, below: int | None = None) -> int:
    """Return ``value``; raise ``ConfigError`` unless it is a whole number in ``[least, below)``."""
    try:
        whole = None if isinstance(value, bool) else operator.index(cast("SupportsIndex", value))
    except TypeError:
        whole = None
    if whole is None or whole < least or (below is not None and whole >= below):
        limit = "" if below is None else f" and below {below}"
        raise ConfigError(f"{name}={value!r}: expected a whole number of at least {least}{limit}")
    return whole


def check_seed(seed: int) -> int:
    """Return ``seed``; raise ``ConfigError`` unless it is a whole number in ``[0, 2**63)``."""
    return whole_number("seed", seed, least=0, below=SEED_LIMIT)


class RandomSampler:
    """Every sample once, in an order drawn anew each epoch from ``(seed, epoch)``."""

    def __init__(self, n: int, seed: int = 42) -> None:
        self._n = whole_number("n", n, least=0)
        self._seed = check_seed(seed)

    def __len__(self) -> int:
        return self._n

    def indices(self, epoch: int) -> Tensor:
        """Return a permutation of ``range(n)``."""
        return seeded_permutation(self._n, self._seed, epoch)


class SequentialSampler:
    """Every sample once, in the order of the data set, each epoch."""

    def __init__(self, n: int) -> None:
        self._n = whole_number("n", n, least=0)

    def __len__(self) -> int:
        return self._n

    def indices(self, _epoch: int) -> Tensor:
        """Return ``range(n)``."""
        return torch.arange(self._n)


class WeightedSampler:
    """Samples drawn with probabilities proportional to ``weights``, anew each epoch.

    Args:
        weights: One finite weight of at least 0 for each sample; not all of them 0.
        num_samples: Draws in an epoch; as many as there are weights when left out.
        replacement: Whether a sample can be drawn twice in an epoch.
        seed: Base of the draws.

    Raises:
        ConfigError: Unusable weights, or more draws without replacement than positive weights.
    """

    def __init__(
        self,
        weights: Tensor | Sequence[float],
        num_samples: int | None = None,
        *,
        replacement: bool = True,
        seed: int = 42,
    ) -> None:
        values = torch.as_tensor(weights, dtype=torch.float64).cpu()
        if values.dim() != 1 or not bool((values >= 0).all()) or not 0 < values.sum() < torch.inf:
            raise ConfigError(
                f"weights of shape {list(values.shape)}: expected one finite weight of at least 0 "
                "for each sample, and one of them above 0"
            )
        self._weights = values
        draws = values.numel() if num_samples is None else num_samples
        self._count = whole_number("num_samples", draws, least=1)
        positive = int((values > 0).sum())
        if not replacement and self._count > positive:
            raise ConfigError(
                f"num_samples={self._count} without replacement: only {positive} samples have a "
                "weight above 0"
            )
        self._replacement = replacement
        self._seed = check_seed(seed)

    def __len__(self) -> int:
        return self._count

    def indices(self, epoch: int) -> Tensor:
        """Return the draws of one epoch."""
        generator = _generator(self._seed, epoch)
        # torch.multinomial stops at 2**24 weights
        if self._replacement:
            ends = self._weights.cumsum(0)
            draws = torch.rand(self._count, generator=generator, dtype=torch.float64) * ends[-1]
            last = int(
                self._weights.nonzero()[-1]
            )  # a product rounded up to the total stays inside
            return torch.searchsorted(ends, draws, right=True).clamp_(max=last)
        # Efraimidis and Spirakis 2006: the k smallest of exponential variables with these rates
        keys = torch.empty_like(self._weights).exponential_(generator=generator) / self._weights
        return keys.topk(self._count, largest=False).indices


class BlockShuffleSampler:
    """Every sample once: blocks in random order, and each block in random order within itself.

    Neighbours are read together, which suits memory maps and archives.

    Args:
        n: Number of samples.
        block: Samples in a block; the last one may be smaller.
        seed: Base of the orders.
    """

    def __init__(self, n: int, block: int, seed: int = 42) -> None:
        self._n = whole_number("n", n, least=0)
        self._block = whole_number("block", block, least=1)
        self._seed = check_seed(seed)

    def __len__(self) -> int:
        return self._n

    def indices(self, epoch: int) -> Tensor:
        """Return a permutation of ``range(n)``."""
        generator = _generator(self._seed, epoch)
        blocks = -(-self._n // self._block)
        rank = torch.randperm(blocks, generator=generator)
        # one stable sort by block over an already random order shuffles inside blocks too
        order = torch.randperm(self._n, generator=generator)
        return order[rank[order // self._block].argsort(stable=True)]


class TorchSamplerAdapter:
    """The order of a ``torch.utils.data.Sampler``, told the epoch when it has ``set_epoch``."""

    def __init__(self, sampler: TorchSampler[int]) -> None:
        self._sampler: Any = sampler

    def __len__(self) -> int:
        try:
            return len(self._sampler)
        except TypeError as error:
            raise SamplerError(
                f"{type(self._sampler).__name__} has no length: expected a sampler with __len__"
            ) from error

    def indices(self, epoch: int) -> list[int]:
        """Return what the sampler yields for one epoch."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        return list(self._sampler)


def as_sampler(sampler: AnySampler) -> Sampler:
    """Return ``sampler`` itself, or an adapter when it is torch's.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(sampler, TorchSampler):
        return TorchSamplerAdapter(sampler)
    if isinstance(sampler, Sampler):
        return sampler
    raise TypeError(
        f"sampler={sampler!r}: expected __len__ and indices(epoch), or a torch.utils.data.Sampler"
    )


def checked_order(sampler: Sampler, epoch: int, length: int) -> Tensor:
    """Return the order of one epoch as an int64 tensor on the CPU, once it is sound.

    Raises:
        SamplerError: Indices that are not whole numbers, not ``len(sampler)`` of them, or outside
            ``[0, length)``.
    """
    name = type(sampler).__name__
    found = sampler.indices(epoch)
    try:
        order = torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SamplerError(
            f"{name}.indices({epoch}): expected whole numbers, one for each sample: {error}",
            hint="give the loader a sampler of samples, not of batches",
        ) from error
    expected = len(sampler)
    if order.dim() != 1 or order.numel() != expected:
        raise SamplerError(
            f"{name}.indices({epoch}) has the shape {list(order.shape)}: len(sampler) is {expected}"
        )
    if not expected:
        return torch.empty(0, dtype=torch.int64)
    if order.is_floating_point() or order.is_complex() or order.dtype == torch.bool:
        raise SamplerError(f"{name}.indices({epoch}) gave {order.dtype}: expected whole numbers")
    low, high = (int(bound) for bound in torch.aminmax(order))
    if low < 0 or high >= length:
        raise SamplerError(
            f"{name}.indices({epoch}) gave index {low if low < 0 else high}: the data set has the "
            f"indices [0, {length})"
        )
    return order.to("cpu", torch.int64)
