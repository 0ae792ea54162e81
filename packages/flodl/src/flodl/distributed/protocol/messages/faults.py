"""What went wrong, and who is kept out because of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flodl.distributed.protocol.values import Plain, Ranges

ErrorKind = Literal["user", "oom", "cuda", "nonfinite", "internal"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankError:
    """Rank to controller: an exception that ends this rank."""

    kind: ErrorKind
    type_name: str
    """Importable as ``module:qualname``."""
    args: tuple[Plain, ...]
    message: str
    traceback: str
    """The rank's traceback, as Python prints it."""
    epoch: int = 0
    step: int = 0
    ranges: Ranges = ()
    """Positions of the batch at hand."""
    memory: str = ""
    """Summary of the device's memory, for an out-of-memory error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankExit:
    """Host to controller: a rank's process has ended."""

    uid: str
    incarnation: int
    code: int | None
    """Exit status; ``None`` when a signal ended it."""
    signal: int | None = None
    is_oom_killed: bool = False
    last_step: int = 0
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fence:
    """Controller to host: kill this process now, whatever state it is in."""

    uid: str
    incarnation: int
    deadline: float
    """Seconds in which ``Fenced`` is expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fenced:
    """Host to controller: that process is gone and writes nothing any more."""

    uid: str
    incarnation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Nack:
    """Either way: a message of that type and number was not understood or not expected."""

    kind: str
    seq: int
    reason: str
