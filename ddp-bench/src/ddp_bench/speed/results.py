"""What a round measured, and the files that it is kept in."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddp_bench.errors import RunFolderError
from ddp_bench.speed.arms import Policy
from ddp_bench.speed.workload import Dims, Precision
from flodl.checkpoint.files import os_error_hint, write_atomically

SCHEMA = 1
_KEY = ("name", "arm", "variant", "sync_policy", "round")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundResult:
    """One arm of one model in one round under one policy; what was not measured is ``None``."""

    name: str
    arm: str
    variant: str
    sync_policy: Policy
    round: int
    device: str
    dims: Dims
    precision: Precision
    runs: int
    warmup_epochs: int
    measured_epochs: int
    error: str | None = None
    batches_per_epoch: int | None = None
    batch_size: int | None = None
    param_count: int | None = None
    epoch_times_ms: list[float] = field(default_factory=list)
    """Those of the best run."""
    run_medians_ms: list[float] = field(default_factory=list)
    median_epoch_ms: float | None = None
    mean_epoch_ms: float | None = None
    min_epoch_ms: float | None = None
    max_epoch_ms: float | None = None
    median_cpu_ms: float | None = None
    """Of the run that is best by processor time."""
    host_us_per_step: float | None = None
    final_loss: float | None = None
    first_losses: list[float] = field(default_factory=list)
    first_epoch_loss: float | None = None
    first_epoch_ms: float | None = None
    first_step_ms: float | None = None
    capture: dict[str, Any] | None = None
    vram_mb: float | None = None
    vram_reserved_mb: float | None = None
    rss_mb: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what makes it this result and no other."""
        return tuple(getattr(self, name) for name in _KEY)

    @property
    def label(self) -> str:
        """Return the arm as tables name it."""
        return f"{self.arm} ({self.variant})" if self.variant else self.arm


def save(folder: Path, results: Iterable[RoundResult]) -> None:
    """Write results into ``rounds/<arm>_r<k>.json``, beside those of other models there.

    Raises:
        RunFolderError: A file cannot be read or written.
    """
    by_file: dict[Path, dict[tuple[Any, ...], RoundResult]] = {}
    for result in results:
        path = folder / "rounds" / f"{result.arm}_r{result.round}.json"
        if path not in by_file:
            by_file[path] = {old.key: old for old in _read(path)} if path.exists() else {}
        by_file[path][result.key] = result
    for path, found in by_file.items():
        rows = [dataclasses.asdict(result) for _, result in sorted(found.items())]
        write_text(path, json.dumps(rows, indent=1) + "\n")


def load(folder: Path) -> list[RoundResult]:
    """Return all results that were saved in a folder.

    Raises:
        RunFolderError: A file cannot be read, or has another form.
    """
    return [row for path in sorted((folder / "rounds").glob("*_r*.json")) for row in _read(path)]


def forget(folder: Path, models: Sequence[str]) -> None:
    """Remove what an earlier sitting found for these models: rounds of two never mix.

    Raises:
        RunFolderError: A file cannot be read or written.
    """
    for path in sorted((folder / "rounds").glob("*_r*.json")):
        kept = [dataclasses.asdict(row) for row in _read(path) if row.name not in models]
        write_text(path, json.dumps(kept, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file at once, making its folder.

    Raises:
        RunFolderError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise RunFolderError(
            f"{path}: it cannot be written: {error.strerror}", hint=os_error_hint(error)
        ) from error


def _read(path: Path) -> list[RoundResult]:
    try:
        return [RoundResult(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise RunFolderError(
            f"{path}: no results of this suite: {error}",
            hint="remove the file, or give another --output",
        ) from error
