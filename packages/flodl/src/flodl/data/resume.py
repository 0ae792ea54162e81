"""The saved position of a loader: what it holds, and when it fits another loader."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from flodl.core.errors import ResumeMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

VERSION = 1


def order_crc(order: Tensor) -> int:
    """Return the CRC-32 of an order: it tells when another torch version shuffles differently."""
    return zlib.crc32(order.contiguous().numpy().data)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderState:
    """Position of a loader, counted in what the consumer took, not in what was loaded ahead."""

    epoch: int
    batches: int
    samples_consumed: int
    is_complete: bool
    batch_size: int
    drop_last: bool
    seed: int
    shuffle: bool
    dataset_length: int
    order_crc: int | None
    sampler: dict[str, Any] | None
    rank: int = 0
    world_size: int = 1
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values, ready for any state file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LoaderState:
        """Return the state that a dict holds.

        Raises:
            ResumeMismatchError: Another version, keys that are missing or left over, or counts
                that are no counts.
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
        for name in ("epoch", "batches", "samples_consumed"):
            if not isinstance(state[name], int) or state[name] < 0:
                raise ResumeMismatchError(f"{name}: the state has {state[name]!r}: no count")
        return cls(**state)

    def check(self, other: LoaderState, *, strict: bool) -> None:
        """Raise unless a loader whose own state is ``other`` can continue from this one.

        Raises:
            ResumeMismatchError: Names the first field that differs. ``batch_size``,
                ``drop_last`` and ``world_size`` may differ when not ``strict``.
        """
        flexible = ("batch_size", "drop_last", "world_size", "rank")
        fixed = ("dataset_length", "seed", "shuffle")
        for field in (*fixed, *flexible) if strict else fixed:
            saved, here = getattr(self, field), getattr(other, field)
            if saved != here:
                raise ResumeMismatchError(
                    f"{field}: the state was saved with {saved!r}, this loader has {here!r}",
                    hint="load_state_dict(state, strict=False) continues from the same sample"
                    if field in flexible
                    else "build the loader with the same data set and settings",
                )

    def check_order(self, order: Tensor) -> None:
        """Raise unless the state was saved in the middle of ``order``.

        Raises:
            ResumeMismatchError: It was another order, or one with fewer samples than were taken.
        """
        if self.samples_consumed > order.numel():
            raise ResumeMismatchError(
                f"samples_consumed: the state has {self.samples_consumed}, an epoch here has "
                f"{order.numel()} samples"
            )
        crc = order_crc(order)
        if self.order_crc != crc:
            raise ResumeMismatchError(
                f"order_crc: epoch {self.epoch} was in an order with CRC {self.order_crc}, here "
                f"the order has CRC {crc}",
                hint="the sampler must give the same order for the same epoch, under the same "
                "torch version",
            )
