"""What the controller wants done; the rim does it and never decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from flodl.distributed.protocol.messages import Message, RankError
from flodl.distributed.protocol.values import Plain
from flodl.metrics.epoch import EpochMetrics


@dataclass(frozen=True, kw_only=True, slots=True)
class ToHost:
    """Send a message to a host's daemon."""

    host: str
    gen: int
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class ToMember:
    """Send a message to one rank, through its host."""

    uid: str
    gen: int
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class ToMembers:
    """Send the same message to several ranks; a host passes it on to all of its own."""

    uids: tuple[str, ...]
    gen: int
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class RaiseAlert:
    """Show people something that they should know."""

    code: str
    message: str
    level: Literal["info", "warning", "error"] = "warning"
    fields: dict[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class StateChanged:
    """Tell that the run is in another state, by the name of ``/state.json``."""

    state: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishWindow:
    """Put the numbers of a committed window into the records."""

    window: int
    epoch: int
    values: dict[str, float]
    per_member: dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishProgress:
    """Put what one member did since its last report into the records, where steps are averaged."""

    uid: str
    epoch: int
    global_step: int
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishEpoch:
    """Give the metrics of an epoch to the launcher and into the records."""

    metrics: EpochMetrics


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishEval:
    """Give the result of an evaluation to the launcher and into the records."""

    epoch: int
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteDeath:
    """Write the death file of a member that was lost."""

    number: int
    details: dict[str, Plain]


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveKept:
    """Save what ranks have kept outside their processes beside the checkpoint: none is left."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Persist:
    """Write ``Controller.to_state()`` where a restarted controller finds it.

    It must be written before the commands that follow it are carried out.
    """

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish:
    """The run is over and everyone was told; give the launcher its result."""

    reason: str
    """``"done"``, or why it failed."""
    is_failed: bool = False
    is_partial: bool = False
    errors: tuple[RankError, ...] = ()
    """What ranks raised, the first of each kind."""
    report: dict[str, Plain] = field(default_factory=dict)
    """Accounting, deaths, generations and windows."""


Command: TypeAlias = (
    ToHost
    | ToMember
    | ToMembers
    | RaiseAlert
    | StateChanged
    | PublishWindow
    | PublishProgress
    | PublishEpoch
    | PublishEval
    | WriteDeath
    | SaveKept
    | Persist
    | Finish
)
