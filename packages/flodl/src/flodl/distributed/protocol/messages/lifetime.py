"""How a run ends, and how each side shows that it is alive."""

from __future__ import annotations

from dataclasses import dataclass

from flodl.distributed.protocol.values import Plain


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """Either way: end in good order after a last window."""

    save: bool = True
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Abort:
    """Either way: end at once, whatever is in progress."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bye:
    """Either way: nothing follows; an exit without it is a death."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """Either way: alive, and everything up to a number has arrived."""

    monotonic_ms: float
    acked_seq: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TelemetryRecord:
    """Host or rank to controller: numbers for a node of the record tree."""

    path: str
    values: dict[str, Plain]


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertRaised:
    """Host or rank to controller: something that people should see."""

    code: str
    message: str
    level: str = "warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """Host or rank to controller: one line for the log."""

    level: str
    text: str
