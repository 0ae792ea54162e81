"""``result.json`` (schema 1): everything measured about one cell; ``null`` is what was not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ddp_bench.coverage import Coverage
from ddp_bench.definition import DataFacts, Metric

SCHEMA = 1
CURVE_POINTS = 400

Status = Literal["complete", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CellConfig:
    """What a cell was run with."""

    epochs: int
    batch_size: int
    lr: float
    lr_note: str | None
    clip_value: float | None
    floor: float | None
    """Floor of the set-up; ``None`` where the run was shorter or otherwise not that set-up."""
    device: str
    threads: int
    """Threads torch used for one operation on the CPU."""
    source: Literal["mini", "real"]
    seq_len: int | None
    characters: int | None
    save_dashboard: bool = False
    dashboard_theme: str | None = None
    record_log: str | None = None
    reports_per_epoch: int = 0
    monitor: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochResult:
    """One epoch. ``share`` and ``tput`` hold a value for each rank."""

    epoch: int
    """0-based."""
    loss: float
    eval: float | None
    scalars: dict[str, float]
    wall_ms: float
    """Training part alone."""
    eval_ms: float | None
    share: list[float]
    tput: list[float]
    """Samples per millisecond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalResult:
    """Where the run ended up."""

    train_loss: float | None
    eval: float | None
    metric: Metric
    higher_is_better: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class WallTimes:
    """Seconds; loading data counts nowhere."""

    train_only_s: float
    eval_s: float
    total_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """One model in one mode with one seed."""

    schema: int = SCHEMA
    model: str
    mode: str
    profile: Literal["mini", "full"]
    seed: int
    world: int
    device_class: Literal["cpu", "cuda"]
    status: Status
    error: str | None
    config: CellConfig
    data: DataFacts
    init_hash: str | None
    """SHA-256 over the initial parameters and buffers, in order."""
    epochs: list[EpochResult]
    loss_curve: list[list[float]]
    """Pairs of step and mean loss of the steps since the pair before."""
    final: FinalResult
    coverage: Coverage
    wall: WallTimes
    sync: dict[str, float] | None = None
    elche: dict[str, float] | None = None
    divergence: dict[str, float] | None = None
    memory: list[dict[str, float]] | None = None
    capture: dict[str, str] | None = None
    env: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the document as plain values; what is not finite becomes ``None``."""
        document = _finite(asdict(self))
        assert isinstance(document, dict)
        return document


def dump_json(document: Any) -> str:
    """Return a document as indented JSON text."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def thin_curve(losses: Sequence[float], points: int = CURVE_POINTS) -> list[list[float]]:
    """Return at most ``points`` pairs of step and mean loss of an equal stretch before it."""
    stretch = max(1, math.ceil(len(losses) / points))
    return [
        [min(start + stretch, len(losses)), _mean(losses[start : start + stretch])]
        for start in range(0, len(losses), stretch)
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
