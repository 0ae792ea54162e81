"""What one epoch of training amounted to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochMetrics:
    """Summary of one epoch. Lists have one entry per rank that worked in it."""

    epoch: int
    """0-based."""
    avg_loss: float
    """Mean training loss, weighted by samples."""
    epoch_ms: float
    """Wall time of the training part, evaluation excluded."""
    eval_ms: float | None = None
    """Wall time of the evaluation, or ``None`` where there was none."""
    batches_processed: int
    samples_processed: int
    scalars: dict[str, float] = field(default_factory=dict)
    """Means of what the step recorded, weighted by samples across ranks."""
    eval: dict[str, float] | None = None
    """Result of the evaluation after this epoch, or ``None`` where there was none."""
    lr: float
    """Learning rate of the first parameter group in the epoch's last step."""
    world_size: int = 1
    per_rank_loss: list[float | None] = field(default_factory=list)
    """``None`` for a rank that had no batches."""
    per_rank_scalars: list[dict[str, float]] = field(default_factory=list)
    per_rank_samples: list[int] = field(default_factory=list)
    per_rank_time_ms: list[float] = field(default_factory=list)
    per_rank_throughput: list[float] = field(default_factory=list)
    """Samples per millisecond."""
    per_rank_batch_share: list[float] = field(default_factory=list)
    """Share of the epoch's samples, from 0 to 1."""
    per_rank_data_starve_ms: list[float] = field(default_factory=list)
    """Time of a step spent waiting for data."""
    per_rank_compute_only_ms: list[float] = field(default_factory=list)
    """Time of a step without waiting for data."""
    device_indices: list[int] = field(default_factory=list)
    """Physical index of each rank's device."""
    rank_hosts: list[str] = field(default_factory=list)
    member_ids: list[int] = field(default_factory=list)
    """Numbers of the members, which stay when ranks are numbered anew."""
    generation: int = 0
    """How often the group of ranks was formed anew."""
    windows: int = 0
    """Averages that the epoch took."""
    anchor: int | None = None
    """Batches of the slowest rank between two averages, ``None`` without a cadence."""
    phase: str | None = None
    """Phase of the cadence, ``None`` without one."""
    divergence: float | None = None
    """Mean divergence of the ranks at their averages, ``None`` where it is not measured."""
    lost: list[int] = field(default_factory=list)
    """Numbers of the members that were lost in the epoch."""
    joined: list[int] = field(default_factory=list)
    """Numbers of the members that joined in the epoch."""

    @property
    def per_rank(self) -> list[dict[str, float]]:
        """The recorded scalars of each rank; another name of ``per_rank_scalars``."""
        return self.per_rank_scalars
