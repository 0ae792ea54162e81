"""What a loader can be told, checked once, the same for keywords and for the builder."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from flodl.core.errors import ConfigError
from flodl.data.batch import Batch
from flodl.data.sampler import check_seed, whole_number

if TYPE_CHECKING:
    import torch

    from flodl.data.sampler import AnySampler

BatchTransform: TypeAlias = Callable[[Batch], Batch]

logger = logging.getLogger(__name__)


class LoaderOptions(TypedDict, total=False):
    """Keywords of :class:`DataLoader`; meanings and defaults are those of ``LoaderConfig``."""

    batch_size: int
    device: str | torch.device
    seed: int
    shuffle: bool | None
    sampler: AnySampler | None
    drop_last: bool
    names: Sequence[str] | None
    transform: BatchTransform | None
    device_transform: BatchTransform | None
    prefetch: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderConfig:
    """Settings of a :class:`DataLoader`.

    Raises:
        ConfigError: A value outside its range.
    """

    batch_size: int
    """Rows of a batch."""
    device: str | torch.device = "cpu"
    """Where batches arrive."""
    seed: int = 42
    """Base of the shuffles; the order of an epoch depends on it and the epoch alone."""
    shuffle: bool | None = None
    """Whether each epoch has a new random order; ``None`` is yes, unless ``sampler`` decides."""
    sampler: AnySampler | None = None
    """Order of the samples, in place of ``shuffle`` and ``seed``."""
    drop_last: bool = True
    """Whether a last batch with fewer rows is left out: right for training (batch norm fails on
    one row), wrong for evaluation."""
    names: Sequence[str] | None = None
    """Names of the tensors, in order; ``None`` takes those of the data set, else "0", "1", ..."""
    transform: BatchTransform | None = None
    """Called with each batch on the CPU, in the background thread when batches are loaded ahead."""
    device_transform: BatchTransform | None = None
    """Called with each batch on its device, in the thread that iterates."""
    prefetch: int | None = None
    """Batches that a background thread loads ahead; 0 loads in the thread that iterates. ``None``
    is 0 for tensors in memory and 2 otherwise. Random numbers from torch's global generator are
    not repeatable when drawn ahead: seed a generator from ``batch.epoch`` and ``batch.index``."""

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size, least=1)
        check_seed(self.seed)
        if self.prefetch is not None:
            whole_number("prefetch", self.prefetch, least=0)
        if self.sampler is not None and self.shuffle is not None:
            logger.warning(
                "shuffle=%s has no effect: the sampler %s decides the order",
                self.shuffle,
                type(self.sampler).__name__,
            )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> LoaderConfig:
        """Return the configuration that keywords describe.

        Raises:
            ConfigError: An unknown option, or no ``batch_size``.
        """
        legal = [field.name for field in fields(cls)]
        for name in options:
            if name not in legal:
                near = difflib.get_close_matches(name, legal, n=1)
                raise ConfigError(
                    f"DataLoader has no option {name!r}; it has {', '.join(legal)}",
                    hint=f"did you mean {near[0]}?" if near else None,
                )
        if "batch_size" not in options:
            raise ConfigError("batch_size is missing", hint="give the number of rows of a batch")
        return cls(**options)
