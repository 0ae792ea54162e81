"""The saved position of a loader: what it holds, when it fits another loader, what it leaves."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from flodl.core.errors import ConfigError, ResumeMismatchError
from flodl.data.epoch import EpochPlan
from flodl.data.partition import Ranges, Split, check_ranges, length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

VERSION = 1
_SAME_DATA = "build the loader with the same data set and settings"
_FIXED = ("dataset_length", "seed", "shuffle")
_FLEXIBLE = ("batch_size", "drop_last", "world_size", "shares", "uneven")


def order_crc(order: Tensor) -> int:
    """Return the CRC-32 of an order: it tells when another torch version shuffles differently."""
    return zlib.crc32(order.contiguous().numpy().data)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderState:
    """Position of a loader, counted in what the consumer took, not in what was loaded ahead.

    ``pending`` are the positions of the order that were open when the epoch was cut up for the
    ranks, ``taken`` the batches that this rank took since, ``batches`` those of the whole epoch,
    and ``samples_consumed`` what all ranks took when they keep step.
    """

    epoch: int
    batches: int
    taken: int
    samples_consumed: int
    is_complete: bool
    batch_size: int
    drop_last: bool
    seed: int
    shuffle: bool
    dataset_length: int
    order_crc: int | None
    sampler: dict[str, Any] | None
    pending: Ranges | None = None
    rank: int = 0
    world_size: int = 1
    shares: tuple[float, ...] | None = None
    uneven: str = "drop"
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values, ready for any state file."""
        plain = asdict(self)
        if self.pending is not None:
            plain["pending"] = [list(pair) for pair in self.pending]
        if self.shares is not None:
            plain["shares"] = list(self.shares)
        return plain

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LoaderState:
        """Return the state that a dict holds.

        Raises:
            ResumeMismatchError: Another version, keys that are missing or left over, or values
                that no loader saves.
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
        for name in ("epoch", "batches", "taken", "samples_consumed"):
            if not isinstance(state[name], int) or state[name] < 0:
                raise ResumeMismatchError(f"{name}: the state has {state[name]!r}: no count")
        values = dict(state)
        try:
            if values["pending"] is not None:
                values["pending"] = check_ranges(values["pending"])
            if values["shares"] is not None:
                values["shares"] = tuple(values["shares"])
            found = cls(**values)
            found.split  # noqa: B018 - checks rank, world size and shares together
        except (ConfigError, TypeError) as error:
            raise ResumeMismatchError(f"the state is damaged: {error}") from error
        return found

    @property
    def split(self) -> Split:
        """How the epoch was cut up for the ranks."""
        uneven: Any = self.uneven
        return Split(rank=self.rank, world_size=self.world_size, shares=self.shares, uneven=uneven)

    @property
    def plan(self) -> EpochPlan:
        """The part of the epoch that this rank had, and its batches."""
        return EpochPlan(
            pending=self.pending or (),
            split=self.split,
            batch_size=self.batch_size,
            drop_last=self.drop_last,
        )

    def check(self, other: LoaderState, *, strict: bool) -> None:
        """Raise unless a loader whose own state is ``other`` can continue from this one.

        Raises:
            ResumeMismatchError: Names the first field that differs. Batches and the split among
                ranks may differ when not ``strict``.
        """
        for field in (*_FIXED, *_FLEXIBLE) if strict else _FIXED:
            saved, here = getattr(self, field), getattr(other, field)
            if saved != here:
                raise ResumeMismatchError(
                    f"{field}: the state was saved with {saved!r}, this loader has {here!r}",
                    hint="load_state_dict(state, strict=False) continues from the same samples"
                    if field in _FLEXIBLE
                    else _SAME_DATA,
                )

    def is_cut_as(self, other: LoaderState) -> bool:
        """Return whether a rank of ``other`` can go on with the part that it had."""
        same = all(getattr(self, field) == getattr(other, field) for field in _FLEXIBLE)
        return same and (self.shares is None or self.rank == other.rank)

    def left(self) -> Ranges:
        """Return the positions that no rank had taken, which are cut up anew.

        Raises:
            ResumeMismatchError: Ranks with shares do not keep step: one state does not tell.
        """
        if self.shares is not None and self.taken:
            raise ResumeMismatchError(
                f"shares: rank {self.rank} took {self.taken} batches, which does not say what "
                f"the other {self.world_size - 1} took",
                hint="join the states of all ranks with merge_states(states)",
            )
        return self.plan.left(dict.fromkeys(range(self.world_size), self.taken))

    def samples_total(self) -> int:
        """Return the samples of the epoch: those taken and those left at the same moment."""
        return self.samples_consumed + length(self.plan.left({self.rank: self.taken}))

    def check_order(self, order: Tensor) -> None:
        """Raise unless the state was saved in the middle of ``order``.

        Raises:
            ResumeMismatchError: It was another order, or one with other positions.
        """
        last = max((stop for _, stop in self.pending or ()), default=0)
        if max(last, self.samples_consumed) > order.numel():
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


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one state from those of all ranks, from which any number of ranks can go on.

    Needed where ranks do not keep step: with unequal shares. The result is loaded with
    ``strict=False``.

    Raises:
        ResumeMismatchError: States of different runs or epochs, or not one of each rank.
    """
    found = [LoaderState.from_dict(state) for state in states]
    if not found or sorted(state.rank for state in found) != list(range(found[0].world_size)):
        ranks = [state.rank for state in found]
        raise ResumeMismatchError(f"states of the ranks {ranks}: expected each rank once")
    first = found[0]
    for state in found[1:]:
        for field in ("epoch", "pending", "order_crc", *_FIXED, *_FLEXIBLE):
            if getattr(state, field) != getattr(first, field):
                raise ResumeMismatchError(
                    f"{field}: rank {first.rank} has {getattr(first, field)!r}, rank "
                    f"{state.rank} has {getattr(state, field)!r}: states of different runs"
                )
    left = first.plan.left({state.rank: state.taken for state in found})
    merged = replace(
        first,
        rank=0,
        batches=max(state.batches for state in found),
        taken=0,
        samples_consumed=first.samples_total() - length(left),
        is_complete=all(state.is_complete for state in found),
        pending=left,
    )
    return merged.to_dict()
