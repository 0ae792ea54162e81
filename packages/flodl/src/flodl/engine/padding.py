"""Padding tensors of batches to a few lengths, so that few shapes are captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from flodl.core.errors import ConfigError, SampleError
from flodl.data import Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketSizes:
    """Lengths that one tensor of a batch is padded to.

    Raises:
        ConfigError: A value outside its range.
    """

    sizes: Sequence[int]
    """Legal lengths, in rising order."""
    dim: int = 1
    """Dimension that is padded, from 1: dimension 0 is the samples."""
    value: float = 0
    """What is filled in."""
    mask: str | None = None
    """Name of a tensor to add to the batch: ``[rows, length]``, true where there are data."""

    def __post_init__(self) -> None:
        if not self.sizes or list(self.sizes) != sorted({int(size) for size in self.sizes}):
            raise ConfigError(f"bucket sizes {self.sizes!r}: must be lengths in rising order")
        if self.sizes[0] < 1 or self.dim < 1:
            raise ConfigError(
                f"bucket sizes {self.sizes!r}, dim={self.dim}: lengths and dim must be at least 1"
            )


def check_bucket_sizes(given: object) -> None:
    """Raise unless these are bucket sizes by name.

    Raises:
        ConfigError: Something else, or a mask that two tensors share.
    """
    if not isinstance(given, Mapping) or not all(
        isinstance(sizes, BucketSizes) for sizes in given.values()
    ):
        raise ConfigError(
            f"bucket_sizes={given!r}: must give BucketSizes by tensor name",
            hint='for example bucket_sizes={"tokens": BucketSizes(sizes=[64, 128, 256])}',
        )
    masks = [sizes.mask for sizes in given.values() if sizes.mask is not None]
    if len(set(masks)) < len(masks):
        raise ConfigError(f"bucket_sizes: the masks {masks} need different names")


def padded(batch: Batch, plan: Mapping[str, BucketSizes]) -> Batch:
    """Return the batch with its tensors padded, and masks added.

    Raises:
        SampleError: A tensor is longer than the largest size, or lacks the dimension.
        BatchKeyError: The batch has no tensor of a name.
    """
    tensors = batch.as_dict()
    for name, sizes in plan.items():
        tensor = batch[name]
        if tensor.dim() <= sizes.dim:
            raise SampleError(f"{name!r} is {list(tensor.shape)}: no dimension {sizes.dim} to pad")
        length = tensor.shape[sizes.dim]
        target = next((size for size in sizes.sizes if size >= length), None)
        if target is None:
            raise SampleError(
                f"{name!r} has length {length}: longer than the largest bucket, {sizes.sizes[-1]}",
                hint="give a larger size, or cut the samples",
            )
        tensors[name] = _filled(tensor, sizes, target)
        if sizes.mask is not None:
            if batch.has(sizes.mask):
                raise SampleError(f"the batch has a tensor {sizes.mask!r}, the name of a mask")
            tensors[sizes.mask] = _mask(tensor, length, target)
    longer = Batch(
        list(tensors.values()),
        list(tensors),
        epoch=batch.epoch,
        index=batch.index,
        static=batch.static,
    )
    longer.lease_id, longer.ranges = batch.lease_id, batch.ranges
    return longer


def _filled(tensor: Tensor, sizes: BucketSizes, target: int) -> Tensor:
    missing = target - tensor.shape[sizes.dim]
    if not missing:
        return tensor
    amounts = [0, 0] * (tensor.dim() - 1 - sizes.dim) + [0, missing]
    filled = functional.pad(tensor, amounts, value=sizes.value)
    return filled.pin_memory() if tensor.is_pinned() else filled


def _mask(tensor: Tensor, length: int, target: int) -> Tensor:
    mask = torch.zeros((tensor.shape[0], target), dtype=torch.bool, device=tensor.device)
    mask[:, :length] = True
    return mask
