"""Settings of ElChe: which mode, how often ranks average, and what holds it back."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from flodl.core.log import warn_once
from flodl.distributed.config.checks import is_number, is_whole, one_of, positive, raise_for, whole
from flodl.distributed.config.guard import ConvergenceGuard
from flodl.distributed.config.modes import Collective, ElCheMode, Payload

_log = logging.getLogger(__name__)

Hierarchy = Literal["auto", "flat", "two_level", "star"]
Center = Literal["consensus", "elastic"]

DEFAULT_ANCHOR = 10
DEFAULT_MAX_ANCHOR = 1000
DEFAULT_ALPHA = 0.5


class ElCheOptions(TypedDict, total=False):
    """Keyword overrides of a preset: the fields of ``ElCheConfig`` but the mode."""

    anchor: int | None
    min_anchor: int | None
    max_anchor: int | None
    anchor_decay: bool
    overhead_target: float
    max_batch_diff: int | None
    max_overshoot: int | None
    relax_up: bool
    partition_ratios: tuple[float, ...] | None
    progressive: bool | None
    speed_hint: tuple[int, float] | None
    sync_payload: Payload | None
    easgd_alpha: float | None
    gamma: float
    center: Center
    bf16_wire: bool
    wire_error_feedback: bool | None
    convergence_guard: ConvergenceGuard | None
    divergence_threshold: float | None
    meta_controller: bool
    hierarchy: Hierarchy
    snapshot_timeout: float
    deterministic: Literal["schedule"] | None
    collective: Collective
    shared_moments: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ElCheConfig:
    """How ranks of unequal speed share work and average. ``None`` means "decide for me".

    Raises:
        ConfigError: A value is out of range or does not fit the mode; the message lists all.

    Examples:
        >>> ElCheConfig.cpu_async(easgd_alpha=0.6).alpha
        0.6
    """

    mode: ElCheMode = ElCheMode.NCCL_CADENCE
    anchor: int | None = None
    """Batches of the slowest rank between two averages at the start; ``None``: 10, sync 1."""
    min_anchor: int | None = None
    max_anchor: int | None = None
    anchor_decay: bool = False
    """Shrink the anchor by one when the overhead is under half its target."""
    overhead_target: float = 0.10
    """Share of a window that averaging may take; held within 0.01 and 0.5."""
    max_batch_diff: int | None = None
    """Steps that a rank may be ahead of the slowest one since the last average."""
    max_overshoot: int | None = None
    """cpu_async: steps past its count that a rank may take while an average is made."""
    relax_up: bool = False
    partition_ratios: tuple[float, ...] | None = None
    """Sync modes: share of an epoch of each rank."""
    progressive: bool | None = None
    """Hand out work as ranks finish it; ``None``: in cadence and async modes."""
    speed_hint: tuple[int, float] | None = None
    """The slowest rank, and how many times as fast the others are."""
    sync_payload: Payload | None = None
    easgd_alpha: float | None = None
    """cpu_async: how far a rank moves to the consensus, up to 1; ``None``: 0.5."""
    gamma: float = 1.0
    """Exponent of a rank's samples in its weight; 0: all equal."""
    center: Center = "consensus"
    bf16_wire: bool = False
    """CPU modes: send what changed since the last consensus in bfloat16."""
    wire_error_feedback: bool | None = None
    convergence_guard: ConvergenceGuard | None = None
    divergence_threshold: float | None = None
    """Threshold of the default guard; ``None``: 0.05, and 0.3 with EASGD."""
    meta_controller: bool = True
    hierarchy: Hierarchy = "auto"
    """How averages travel: ``"two_level"`` through shared memory within a host and between hosts by
    one rank of each, ``"flat"`` over one group of all ranks; ``"auto"``: flat with NCCL only."""
    snapshot_timeout: float = 5.0
    """CPU modes: seconds after which a rank's late contribution counts for nothing."""
    deterministic: Literal["schedule"] | None = None
    """``"schedule"``: no decision depends on measured time."""
    collective: Collective = "nccl"
    """``"gloo"``: the two nccl modes on CPU ranks."""
    shared_moments: bool = True
    """Where ranks average parameters: correct Adam's second moments to those of averaged gradients.
    Without it each of W ranks takes steps that are up to sqrt(W) too short. Not with an outer
    optimizer, which makes up for that, nor with a gradient scaler."""

    def __post_init__(self) -> None:
        raise_for([*_ranges(self), *_speed_hint(self), *_choices(self), *_fits_mode(self)])
        if self.easgd_alpha is not None and not self.mode.is_async:
            warn_once(
                _log,
                "easgd_alpha=%s has no effect in %s: only cpu_async blends",
                self.easgd_alpha,
                self.mode,
            )

    @classmethod
    def nccl_sync(cls, **options: Unpack[ElCheOptions]) -> ElCheConfig:
        """Return settings for gradients averaged by GPU collectives at every batch."""
        return cls(mode=ElCheMode.NCCL_SYNC, **options)

    @classmethod
    def nccl_cadence(cls, **options: Unpack[ElCheOptions]) -> ElCheConfig:
        """Return settings for parameters averaged by GPU collectives as the slow rank sets it."""
        return cls(mode=ElCheMode.NCCL_CADENCE, **options)

    @classmethod
    def cpu_sync(cls, **options: Unpack[ElCheOptions]) -> ElCheConfig:
        """Return settings for parameters averaged over the CPU plane at every batch."""
        return cls(mode=ElCheMode.CPU_SYNC, **options)

    @classmethod
    def cpu_cadence(cls, **options: Unpack[ElCheOptions]) -> ElCheConfig:
        """Return settings for parameters averaged over the CPU plane as the slow rank sets it."""
        return cls(mode=ElCheMode.CPU_CADENCE, **options)

    @classmethod
    def cpu_async(cls, **options: Unpack[ElCheOptions]) -> ElCheConfig:
        """Return settings for averages made in the background, blended in when they arrive."""
        return cls(mode=ElCheMode.CPU_ASYNC, **options)

    def replace(self, **options: Unpack[ElCheOptions]) -> ElCheConfig:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **options)

    @property
    def initial_anchor(self) -> int:
        """The anchor that a run starts with."""
        if self.anchor is not None:
            return self.anchor
        return 1 if self.mode.is_sync else DEFAULT_ANCHOR

    @property
    def least_anchor(self) -> int:
        """The anchor below which only a guard's nudge may go."""
        return self.initial_anchor if self.min_anchor is None else self.min_anchor

    @property
    def most_anchor(self) -> int:
        """The anchor above which growth is never proposed."""
        return DEFAULT_MAX_ANCHOR if self.max_anchor is None else self.max_anchor

    @property
    def alpha(self) -> float | None:
        """How far ranks blend towards the consensus; ``None``: they take it over."""
        if not self.mode.is_async:
            return None
        return DEFAULT_ALPHA if self.easgd_alpha is None else self.easgd_alpha

    @property
    def payload(self) -> Payload:
        """What ranks exchange."""
        return self.mode.default_payload if self.sync_payload is None else self.sync_payload

    @property
    def is_progressive(self) -> bool:
        """Whether work is handed out as ranks finish it."""
        return not self.mode.is_sync if self.progressive is None else self.progressive

    @property
    def error_feedback(self) -> bool:
        """Whether what bfloat16 rounds away is added to the next window."""
        return self.bf16_wire if self.wire_error_feedback is None else self.wire_error_feedback


def _ranges(config: ElCheConfig) -> Iterator[str]:
    for name in ("anchor", "min_anchor", "max_anchor"):
        yield from whole(name, getattr(config, name), 1, optional=True)
    for name in ("max_batch_diff", "max_overshoot"):
        yield from whole(name, getattr(config, name), 0, optional=True)
    yield from positive("overhead_target", config.overhead_target)
    yield from positive("snapshot_timeout", config.snapshot_timeout)
    if config.easgd_alpha is not None:
        yield from positive("easgd_alpha", config.easgd_alpha, most=1)
    if config.divergence_threshold is not None:
        yield from positive("divergence_threshold", config.divergence_threshold)
    if config.gamma != 0:
        yield from positive("gamma", config.gamma)
    low, high = config.least_anchor, config.most_anchor
    if is_whole(low, 1) and is_whole(high, 1) and low > high:
        yield (
            f"anchor={config.anchor!r}, min_anchor={config.min_anchor!r}: must not exceed "
            f"max_anchor={high}"
        )


def _speed_hint(config: ElCheConfig) -> Iterator[str]:
    hint: tuple[object, ...] | None = config.speed_hint
    if hint is None:
        return
    if len(hint) != 2 or not is_whole(hint[0], 0) or not is_number(hint[1], above=0):
        yield f"speed_hint={hint!r}: must be (slow rank, ratio)"
    elif config.speed_hint is not None and config.speed_hint[1] < 1:
        yield (
            f"speed_hint={hint!r}: the ratio says how many times as fast the other ranks are and "
            "must be 1 or more"
        )


def _choices(config: ElCheConfig) -> Iterator[str]:
    yield from one_of("mode", config.mode, tuple(ElCheMode))
    yield from one_of("center", config.center, ("consensus", "elastic"))
    yield from one_of("hierarchy", config.hierarchy, ("auto", "flat", "two_level", "star"))
    yield from one_of("deterministic", config.deterministic, (None, "schedule"))
    yield from one_of("collective", config.collective, ("nccl", "gloo"))
    yield from one_of("sync_payload", config.sync_payload, (None, "grads", "params"))


def _fits_mode(config: ElCheConfig) -> Iterator[str]:
    """Give problems of values that are legal, but not in this mode."""
    mode = config.mode
    refused = {
        "max_overshoot": (config.max_overshoot is not None and not mode.is_async, "cpu_async"),
        "partition_ratios": (
            config.partition_ratios is not None and not mode.is_sync,
            "a sync mode",
        ),
        "sync_payload": (config.sync_payload is not None and not mode.is_sync, "a sync mode"),
        "bf16_wire": (config.bf16_wire and mode.is_nccl, "a cpu mode"),
        "collective": (config.collective == "gloo" and not mode.is_nccl, "an nccl mode"),
        "hierarchy": (config.hierarchy == "star" and mode.is_nccl, "a cpu mode"),
    }
    for name, (wrong, where) in refused.items():
        if wrong:
            yield f"{name}={getattr(config, name)!r} in {mode}: only {where} has it"
    ratios = config.partition_ratios
    if ratios is not None and (not ratios or not all(is_number(r, above=0) for r in ratios)):
        yield f"partition_ratios={ratios!r}: must be a positive number for each rank"
    if mode.is_sync and config.progressive:
        yield f"progressive=True in {mode}: sync modes split an epoch before it starts"
