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
    per_rank_scalars: list[dict[str, float]] = field(default_factory=list)
    per_rank_samples: list[int] = field(default_factory=list)
    per_rank_time_ms: list[float] = field(default_factory=list)
    per_rank_throughput: list[float] = field(default_factory=list)
    """Samples per millisecond."""
