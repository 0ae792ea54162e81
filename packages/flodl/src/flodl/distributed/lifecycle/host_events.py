"""What happens to a host, besides the controller's messages, and what it is then to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from flodl.distributed.protocol.messages import Accept, Message
from flodl.distributed.protocol.values import RankProgress


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkUp:
    """The controller's socket is open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkDown:
    """The controller's socket closed, or could not be opened."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BeatAcked:
    """The controller answered a beat that was sent at the given time."""

    sent_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RankStarted:
    """A rank's process runs."""

    uid: str
    incarnation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnded:
    """A rank's process is gone, and its status was collected."""

    uid: str
    incarnation: int
    code: int | None
    signal: int | None = None
    is_oom_killed: bool = False
    said_bye: bool = False
    is_user_error: bool = False
    """Whether it had sent a ``RankError`` of kind ``"user"``."""
    last_step: int = 0
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PagesRead:
    """The progress pages of all ranks were read."""

    ranks: tuple[RankProgress, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FromController:
    """The controller sent a message to the host itself, under the given generation."""

    gen: int
    message: Message


HostEvent: TypeAlias = (
    FromController | LinkUp | LinkDown | BeatAcked | RankStarted | RankEnded | PagesRead | Tick
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Connect:
    """Open the controller's socket after a pause; answer with ``LinkUp`` or ``LinkDown``."""

    after: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SendUp:
    """Send a message of the host itself to the controller."""

    message: Message
    gen: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Spawn:
    """Start a rank's process; answer with ``RankStarted`` or ``RankEnded``."""

    uid: str
    number: int
    incarnation: int
    accept: Accept


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """End a rank's process and its group by SIGKILL, or SIGTERM where it may clean up."""

    uid: str
    incarnation: int
    is_gentle: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldRanks:
    """Tell every rank that the host's lease has expired: no step, no callback, no write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TellLink:
    """Tell every rank whether the controller can be reached."""

    is_up: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ExitHost:
    """End the daemon: 0 done, 1 may be tried again, 2 will never work."""

    code: int


HostCommand: TypeAlias = Connect | SendUp | Spawn | Kill | HoldRanks | TellLink | ExitHost
