"""The plain values that messages are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Plain: TypeAlias = "bool | int | float | str | bytes | list[Plain] | dict[str, Plain] | None"
"""What a body may hold where its meaning belongs to someone else."""

Range: TypeAlias = tuple[int, int]
Ranges: TypeAlias = tuple[Range, ...]
"""Half-open ranges of positions in an epoch's order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One device that a host offers for one rank."""

    uuid: str
    name: str
    index: int = 0
    """Physical index on the host."""
    arch: str = ""
    vram: int = 0
    """Bytes; 0 on a CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """What a host runs; differences are judged when it joins."""

    flodl: str
    torch: str
    python: str
    nccl: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What a member that was cut off, or outlived its controller, still has."""

    gen: int
    version: int
    """Last window whose result it took over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One member that a host brings along."""

    uid: str
    """``host/device-uuid/ordinal``, the same for ever."""
    incarnation: int
    """Counts the processes that this member has been, from 0."""
    device: Device
    held: Held | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """One member that was let in."""

    uid: str
    incarnation: int
    number: int
    """The ``N`` of ``rankN`` that people see: never given to another member."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a member stands in one generation."""

    uid: str
    rank: int
    """Dense, 0 to W-1."""
    number: int
    host: str
    data_address: str = ""
    is_leader: bool = False
    """Whether it folds for its host."""
    is_new: bool = False
    """Whether it starts afresh: it drops leases and local work of before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """When a rank ends its window by itself: whichever comes first."""

    steps: int | None = None
    """After so many steps; 0: at the next boundary between batches."""
    wall_ms: float | None = None
    """At the boundary nearest to so much time spent on batches."""
    at_end: bool = False
    """When it has no lease left: nothing more comes in this window."""
    overshoot: int = 0
    """Steps that it may go on past that while the average is made (cpu_async)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """How far a lease has been trained, counted from its start.

    The order of batches within a lease is fixed, so the counts name the positions.
    """

    lease_id: int
    batches: int
    samples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankProgress:
    """One rank as its host sees it."""

    uid: str
    step: int
    """Steps since the rank's process started."""
    window_steps: int
    """Steps since the last reduce."""
    phase: str
    batch_ms: float
    """Smoothed time of a batch; 0 while unknown."""
    beat_age: float
    """Seconds since the rank last wrote its progress page."""
    vram: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Telemetry:
    """What a rank measured in one window, for people."""

    loss: float | None = None
    """Mean over the window's samples."""
    lr: float | None = None
    scalars: dict[str, float] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    """Milliseconds by name, such as ``starve_ms`` and ``compute_ms``."""
    resources: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One part of a checkpoint, as the manifest lists it."""

    name: str
    sha256: str
    size: int
