"""What a graph that trains on several devices can be told about the exchange between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from flodl.distributed.config.checks import is_number, is_whole, positive, raise_for, whole
from flodl.records.events import EventKind


class TakesEvents(Protocol):
    """Keeps what happened when, as flodl's ``Timeline`` does."""

    def event(self, event: EventKind) -> None:
        """Keep an event of this moment."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DdpConfig:
    """How devices share the work of a graph's own loop.

    Raises:
        ConfigError: A value is out of range; the message lists all of them.
    """

    speed_hint: tuple[int, float] | None = None
    """The slowest device, and how many times as fast the others are."""
    overhead_target: float = 0.10
    """Share of the time between two steps that the exchange may take, with ElChe."""
    max_anchor: int | None = None
    """Most batches of the slowest device between two steps: 0 turns ElChe off, ``None`` leaves
    both to ElChe."""
    max_grad_norm: float | None = None
    """Largest joint 2-norm of the gradients of one device."""
    timeline: TakesEvents | None = None
    """Is told of each exchange."""

    def __post_init__(self) -> None:
        problems = []
        hint: tuple[object, ...] | None = self.speed_hint
        if hint is not None and not (
            len(hint) == 2
            and is_whole(hint[0], 0)
            and is_number(hint[1], above=0)
            and float(self.speed_hint[1]) >= 1  # type: ignore[index] # it is that hint
        ):
            problems.append(f"speed_hint={hint!r}: must be (slowest device, ratio of 1 or more)")
        problems += positive("overhead_target", self.overhead_target, most=1)
        problems += whole("max_anchor", self.max_anchor, 0, optional=True)
        if self.max_grad_norm is not None:
            problems += positive("max_grad_norm", self.max_grad_norm)
        raise_for(problems)
