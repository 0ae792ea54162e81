"""What happens to a rank, besides the controller's messages, and what it is then to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flodl.distributed.config.modes import Payload
from flodl.distributed.lifecycle.work import WorkInHand
from flodl.distributed.protocol.messages import (
    Accept,
    CallbackDone,
    Commit,
    Lease,
    Message,
    RankError,
    ReduceGo,
    RunCallback,
    StateSync,
    World,
)
from flodl.distributed.protocol.values import Telemetry


@dataclass(frozen=True, kw_only=True, slots=True)
class FromController:
    """The controller sent a message, under the given generation."""

    gen: int
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """Model, optimizer and data are there."""

    build_ms: float
    model_sig: str | None = None
    dataset_sig: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Formed:
    """The groups of a generation stand, or could not be formed."""

    gen: int
    ok: bool
    ms: float
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateTaken:
    """This rank's part in a ``StateSync`` is done."""

    gen: int
    ok: bool = True
    error: str = ""
    work: WorkInHand | None = None
    """That of the rank which this one goes on as."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchDone:
    """One batch was trained.

    With gradients it is also a step without a batch of one's own: lease 0, no samples.
    """

    lease_id: int
    samples: int
    wall_ms: float
    """Compute time, callbacks excluded."""
    delivered_ms: float | None = None
    """Data wait, compute and transport, where measured."""
    is_first: bool = False
    """Whether it was the first batch of a chunk, whose data wait says nothing about speed."""
    left_out: int = 0
    """The last steps, this one among them, that all ranks left out as not finite (gradients)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowMeasured:
    """The payload of a window is ready, and this is what can be said of it."""

    window: int
    is_finite: bool = True
    payload_hash: str = ""
    telemetry: Telemetry = field(default_factory=Telemetry)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceDone:
    """The collective of a window ended and its result was taken over."""

    window: int
    ms: float
    delta: float | None = None
    pre_norm: float | None = None
    post_norm: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceFailed:
    """The collective of a window ended with an error; parameters are as before."""

    window: int
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallbackEnded:
    """A callback returned or raised, or the files that it left to be written are there."""

    done: CallbackDone | None
    """``None``: they are still being written, while training goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Raised:
    """An exception ends this rank."""

    error: RankError


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkLost:
    """The controller cannot be reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkRestored:
    """The controller can be reached again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLeaseExpired:
    """The host had no beat acknowledged for so long that work may be given to others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """Time has passed."""


RankEvent: TypeAlias = (
    FromController
    | Built
    | Formed
    | StateTaken
    | BatchDone
    | WindowMeasured
    | ReduceDone
    | ReduceFailed
    | CallbackEnded
    | Raised
    | LinkLost
    | LinkRestored
    | HostLeaseExpired
    | Tick
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Send:
    """Send a message to the controller, under the given generation."""

    message: Message
    gen: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """Build model, optimizer and data; answer with ``Built`` or ``Raised``."""

    accept: Accept


@dataclass(frozen=True, kw_only=True, slots=True)
class FormGroups:
    """Form the groups of a generation, giving up the ones before; answer with ``Formed``."""

    world: World


@dataclass(frozen=True, kw_only=True, slots=True)
class TakeState:
    """Take part in bringing all members to one state; answer with ``StateTaken``."""

    sync: StateSync


@dataclass(frozen=True, kw_only=True, slots=True)
class TakeLease:
    """Put a lease behind those the loader has."""

    lease: Lease


@dataclass(frozen=True, kw_only=True, slots=True)
class DropLeases:
    """Forget every lease that the loader has; their work belongs to others now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureWindow:
    """Prepare what is to be averaged, out of place; answer with ``WindowMeasured``.

    With ``payload="snapshot"`` it is a copy and training goes on; with ``"grads"`` there is
    nothing to prepare and only telemetry is asked for; otherwise training waits.
    """

    window: int
    payload: Payload
    samples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StartReduce:
    """Start the collective; answer with ``ReduceDone`` or ``ReduceFailed``."""

    go: ReduceGo
    weight: float
    """This rank's share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AbandonReduce:
    """Give up the collective in progress; its result, should it come, is not taken over."""

    window: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyCommit:
    """Take over counters and the learning-rate scale of a committed window."""

    commit: Commit


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecuteCallback:
    """Run a callback on consensus parameters; answer with ``CallbackEnded``."""

    callback: RunCallback
    work: dict[str, Any] | None = None
    """The work in hand, where the callback is to keep it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveOrphan:
    """Save the newest consensus beside the checkpoint, as the controller stayed away."""

    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """End the process with a status; 0 only after a ``Bye`` was sent."""

    code: int


RankCommand: TypeAlias = (
    Send
    | Build
    | FormGroups
    | TakeState
    | TakeLease
    | DropLeases
    | MeasureWindow
    | StartReduce
    | AbandonReduce
    | ApplyCommit
    | ExecuteCallback
    | SaveOrphan
    | Exit
)
