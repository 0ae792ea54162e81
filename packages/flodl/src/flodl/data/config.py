"""What a loader can be told, checked once, the same for keywords and for the builder."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from flodl.core.errors import ConfigError
from flodl.data.batch import Batch
from flodl.data.sampler import check_seed, whole_number
from flodl.data.storage import check_storage_dtype

if TYPE_CHECKING:
    import torch

    from flodl.data.sampler import AnySampler
    from flodl.data.storage import StorageDtype

BatchTransform: TypeAlias = Callable[[Batch], Batch]
Collate: TypeAlias = Callable[[list[Any]], Any]
WorkerMode: TypeAlias = Literal["thread", "process"]
Resident: TypeAlias = Literal["partition"] | bool

VRAM_RANGE = (0.5, 0.99)

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
    collate: Collate | None
    prefetch: int | None
    resident: Resident | None
    streaming: bool
    storage_dtype: StorageDtype | None
    vram_max_usage: float
    activation_reserve: int | None
    workers: int
    worker_mode: WorkerMode
    timeout: float | None
    pin: bool
    max_pinned_bytes: int | None


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
    """Called with each batch on the CPU, in a background thread when batches are loaded ahead; on a
    GPU it means streaming."""
    device_transform: BatchTransform | None = None
    """Called with each batch on its device, in the thread that iterates."""
    collate: Collate | None = None
    """Called with the list of samples of a batch in place of stacking them; gives tensors, a dict
    of them or a ``Batch``."""
    prefetch: int | None = None
    """Batches that background threads load ahead; 0 loads in the thread that iterates. ``None`` is
    0 for tensors in memory, what fits into a GPU, and 2 otherwise. Random numbers from torch's
    global generator are not repeatable when drawn ahead: seed a generator from ``batch.epoch`` and
    ``batch.index``."""
    resident: Resident | None = None
    """Whether the whole set is held on the device. ``None`` decides by memory, for sets that are
    tensors in memory or have ``is_fixed``; ``True`` makes running out of memory an error.
    ``"partition"`` holds no more than this rank's part, which is then the same in each epoch and
    shuffled in itself; it is loaded when the first epoch begins."""
    streaming: bool = False
    """Whether to fetch batches in any case."""
    storage_dtype: StorageDtype | None = None
    """The dtype in which floating-point tensors are kept and delivered, or a dict of those of some
    tensors by name; ``device_transform`` may convert back. Values that it cannot hold are an
    error, but floating-point numbers may be rounded."""
    vram_max_usage: float = 0.90
    """Share of a GPU's memory that may be used at all, by everybody; kept within 0.5 to 0.99."""
    activation_reserve: int | None = None
    """Bytes of a GPU that batches loaded ahead leave to a training step; ``None`` measures."""
    workers: int = 1
    """Threads or processes that load batches ahead."""
    worker_mode: WorkerMode = "thread"
    """``"process"`` reads and transforms in child processes, for Python code that is slow: each
    batch has random numbers seeded by ``seed``, epoch and batch there."""
    timeout: float | None = None
    """Seconds that one batch may take before ``DataStallError``."""
    pin: bool = False
    """Whether batches on the CPU are page-locked, for own copies to a GPU."""
    max_pinned_bytes: int | None = None
    """Page-locked memory for copies under way; ``None`` is 1 GiB, or 5% of the host if less."""

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size, least=1)
        whole_number("workers", self.workers, least=1)
        check_seed(self.seed)
        for name in ("prefetch", "activation_reserve", "max_pinned_bytes"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=0)
        if self.worker_mode not in get_args(WorkerMode):
            raise ConfigError(f'worker_mode={self.worker_mode!r}: expected "thread" or "process"')
        if self.storage_dtype is not None:
            check_storage_dtype(self.storage_dtype)
        for name in ("transform", "device_transform", "collate"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise ConfigError(f"{name}={given!r}: expected a function, or None")
        self._check_resident()
        self._check_timeout()
        self._clamp_vram()
        if self.sampler is not None and self.shuffle is not None:
            logger.warning(
                "shuffle=%s has no effect: the sampler %s decides the order",
                self.shuffle,
                type(self.sampler).__name__,
            )

    def _check_resident(self) -> None:
        chosen = self.resident
        if not isinstance(chosen, bool) and chosen not in {None, "partition"}:
            raise ConfigError(f'resident={chosen!r}: expected True, False, "partition" or None')
        if chosen and (self.streaming or self.collate is not None):
            other = "streaming=True" if self.streaming else "collate"
            raise ConfigError(
                f"resident={chosen!r} with {other}: a resident set is not read by batch"
            )
        if chosen == "partition" and self.sampler is not None:
            raise ConfigError(
                'resident="partition" with a sampler: it may ask for samples of other ranks',
                hint="leave the order to seed and shuffle",
            )

    def _check_timeout(self) -> None:
        if self.timeout is None:
            return
        if not is_number(self.timeout) or not self.timeout > 0:
            raise ConfigError(f"timeout={self.timeout!r}: expected seconds above 0, or None")
        if self.prefetch == 0:
            raise ConfigError(
                "timeout with prefetch=0: a read in the thread that iterates cannot be left",
                hint="load ahead with prefetch=1 or more",
            )

    def _clamp_vram(self) -> None:
        low, high = VRAM_RANGE
        if not is_number(self.vram_max_usage) or math.isnan(self.vram_max_usage):
            raise ConfigError(
                f"vram_max_usage={self.vram_max_usage!r}: expected a number from {low} to {high}"
            )
        kept = min(max(self.vram_max_usage, low), high)
        if kept != self.vram_max_usage:
            logger.warning("vram_max_usage=%s: using %s", self.vram_max_usage, kept)
            object.__setattr__(self, "vram_max_usage", kept)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> LoaderConfig:
        """Return the configuration that keywords describe.

        Raises:
            ConfigError: An unknown option, or no ``batch_size``.
        """
        _check_known(options, [field.name for field in fields(cls)])
        if "batch_size" not in options:
            raise ConfigError("batch_size is missing", hint="give the number of rows of a batch")
        return cls(**options)


def is_number(value: object) -> bool:
    """Return whether a setting is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def split_options(options: Mapping[str, Any], *configs: type[Any]) -> list[Any]:
    """Return each configuration built of the options that are its own.

    Raises:
        ConfigError: An option that none of them has, or a value outside its range.
    """
    own = [{field.name for field in fields(config)} for config in configs]
    _check_known(options, sorted(set().union(*own)))
    return [
        config(**{name: value for name, value in options.items() if name in names})
        for config, names in zip(configs, own, strict=True)
    ]


def _check_known(options: Mapping[str, Any], legal: list[str]) -> None:
    for name in options:
        if name not in legal:
            near = difflib.get_close_matches(name, legal, n=1)
            raise ConfigError(
                f"DataLoader has no option {name!r}; it has {', '.join(legal)}",
                hint=f"did you mean {near[0]}?" if near else None,
            )
