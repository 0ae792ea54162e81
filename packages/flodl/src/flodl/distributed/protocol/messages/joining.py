"""How a member comes in, and how a generation of members is formed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from flodl.distributed.protocol.messages.work import Lease
from flodl.distributed.protocol.values import (
    Admission,
    Offer,
    Place,
    Plain,
    Ranges,
    Trained,
    Versions,
)

Topology = Literal["solo", "flat", "two_level", "star"]
StatePart = Literal["params", "buffers", "outer", "optimizer"]
StateSource = Literal["donor", "durable", "checkpoint", "exact", "own"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """Host to controller: these members want to take part."""

    host: str
    offers: tuple[Offer, ...]
    versions: Versions
    proto: int
    vendor: str = "cpu"
    run_nonce: str = ""
    """Empty at the first contact; afterwards that of ``Accept``."""
    model_sig: str | None = None
    dataset_sig: str | None = None
    data_address: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accept:
    """Controller to host: these members are in; start their processes."""

    members: tuple[Admission, ...]
    gen: int
    run_nonce: str
    config: dict[str, Plain] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    code_digest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reject:
    """Controller to host: these members are not let in."""

    code: int
    """Close code: 4400 malformed, 4409 duplicate, 4426 does not fit, 4503 not now."""
    kind: str
    """The refusal in one word, such as ``"duplicate_member"``; it never changes."""
    reason: str
    is_retryable: bool
    uids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """Rank to controller: model and data are built, a generation may include me."""

    incarnation: int
    build_ms: float
    model_sig: str | None = None
    dataset_sig: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Controller to hosts and ranks: the members of a generation; form its groups."""

    gen: int
    members: tuple[Place, ...]
    topology: Topology
    nonce: str
    """Prefix of this generation's store keys."""
    timeouts: dict[str, float]
    """Effective seconds by the names of ``Timeouts``."""
    version: int
    """Last committed window, 0 before the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormAck:
    """Rank to controller: its groups of the generation stand, or could not be formed."""

    gen: int
    ok: bool
    ms: float
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSync:
    """Controller to ranks: the receivers take over state, all members take part.

    Every member answers with ``Synced``, also those that neither give nor take.
    """

    gen: int
    source: StateSource
    """``"own"``: nobody sends; the only member goes on from what it has. ``"exact"``: each goes on
    as one rank of the checkpoint."""
    donor: str
    """Uid of the member that sends."""
    receivers: tuple[str, ...]
    version: int
    """Window whose result it is."""
    parts: tuple[StatePart, ...]
    global_step: int
    lr_scale: float
    heirs: tuple[str, ...] = ()
    """Members in the order of the ranks of the checkpoint that they go on as."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Synced:
    """Rank to controller: its state is that of the given version."""

    gen: int
    version: int
    ok: bool = True
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconfigure:
    """Controller to ranks: stop at the next boundary, give up collectives, report.

    It bears the new generation, and so does the answer.
    """

    gen: int
    reason: str
    lost: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Quiesced:
    """Rank to controller: it stands still, and this is how far it has come."""

    gen: int
    version: int
    """Last window whose result it took over."""
    steps: int
    """Steps taken in the open window; with gradients one member may be a step ahead."""
    trained: tuple[Trained, ...]
    """Of every lease it still holds, counted from each lease's start."""
    leases: tuple[Lease, ...] = ()
    """Those leases themselves: a controller that was started again may not know them."""
    left_out: Ranges = ()
    """Steps of the open window, from its first, that all ranks left out (gradients)."""
