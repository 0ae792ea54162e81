"""What a stream of batches is, how it is delivered, and where reading has come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from flodl.core.errors import ConfigError, ResumeMismatchError
from flodl.data.prefetch import LEAST
from flodl.data.sampler import whole_number

if TYPE_CHECKING:
    import torch

    from flodl.data.batch import Batch
    from flodl.data.config import BatchTransform

VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamItem:
    """One batch, the samples of the epoch up to its end, and the state of its source there."""

    batch: Batch
    samples: int
    source: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamState:
    """Position in a stream, counted in what the consumer took.

    ``source`` is the state that the source itself keeps, ``settings`` what must be equal for the
    position to mean the same.
    """

    epoch: int
    batches: int
    samples: int
    is_complete: bool
    rank: int
    world_size: int
    settings: dict[str, Any]
    source: dict[str, Any] | None
    version: int = VERSION

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> StreamState:
        """Return the state that a dict holds.

        Raises:
            ResumeMismatchError: Another version, or keys that are missing or left over.
        """
        if state.get("version") != VERSION:
            raise ResumeMismatchError(
                f"version: the state has {state.get('version')!r}, this flodl reads {VERSION}"
            )
        legal = {field.name for field in fields(cls)}
        if set(state) != legal:
            raise ResumeMismatchError(
                f"keys: the state lacks {sorted(legal - set(state))} and has the unknown "
                f"{sorted(set(state) - legal)}"
            )
        return cls(**state)


class BatchStream(Protocol):
    """A source of batches that is read from front to back, once in each epoch."""

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values that a saved position depends on."""
        ...

    def open(
        self, epoch: int, rank: int, world_size: int, start: StreamState | None
    ) -> Iterator[StreamItem]:
        """Return the batches of one rank, those after ``start`` when it is given."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamConfig:
    """Settings of a :class:`StreamLoader`.

    Raises:
        ConfigError: A value outside its range.
    """

    device: str | torch.device = "cpu"
    """Where batches arrive."""
    transform: BatchTransform | None = None
    """Called with each batch on the CPU, in the background thread when batches are loaded ahead."""
    device_transform: BatchTransform | None = None
    """Called with each batch on its device, in the thread that iterates."""
    prefetch: int = LEAST
    """Batches that a background thread loads ahead; 0 loads in the thread that iterates."""
    workers: int = 0
    """Child processes that read a share each and form batches in turn; 0 reads in this process."""
    timeout: float | None = None
    """Seconds that one batch may take before ``DataStallError``."""
    pin: bool = False
    """Whether batches on the CPU are page-locked."""

    def __post_init__(self) -> None:
        whole_number("prefetch", self.prefetch, least=0)
        whole_number("workers", self.workers, least=0)
        if self.timeout is not None and (not self.timeout > 0 or not self.prefetch):
            raise ConfigError(
                f"timeout={self.timeout!r} with prefetch={self.prefetch}: expected seconds above 0 "
                "and batches that are loaded ahead"
            )
