"""What one member does on behalf of all: evaluation, checkpoints, the final state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flodl.distributed.protocol.values import FileEntry, Plain

CallbackKind = Literal["eval", "checkpoint", "seal", "final"]
"""``"seal"``: let the parts of a checkpoint that several ranks have written take their places."""
CheckpointMode = Literal["full", "exact", "sharded"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCallback:
    """Controller to rank: run a callback on the consensus of the given version."""

    kind: CallbackKind
    epoch: int
    version: int
    attempt: int = 1
    part: int = 0
    """This rank's share of the work, of ``parts``."""
    parts: int = 1
    stem: str = ""
    """Where a checkpoint goes, without suffix."""
    reason: str = "checkpoint"
    """``save_reason`` of a checkpoint's meta."""
    meta: dict[str, Plain] = field(default_factory=dict)
    """What the controller contributes to a checkpoint's meta."""
    mode: CheckpointMode = "full"
    lead: int = 0
    """The part whose rank also writes what is written once."""
    draft: str = ""
    """Name of the attempt, under which several ranks write parts of one checkpoint."""
    files: tuple[FileEntry, ...] = ()
    """All parts of the checkpoint that is sealed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallbackDone:
    """Rank to controller: how a callback ended."""

    kind: CallbackKind
    epoch: int
    attempt: int
    part: int = 0
    stem: str = ""
    """As in the ``RunCallback``."""
    ok: bool = True
    value: dict[str, float] | None = None
    samples: int = 0
    """What the value is a mean over."""
    ms: float = 0.0
    """Time that training on this rank waited for it."""
    error: str = ""
    files: tuple[FileEntry, ...] = ()
