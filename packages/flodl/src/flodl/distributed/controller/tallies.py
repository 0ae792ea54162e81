"""What members measured in one epoch, added up until it ends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flodl.distributed.controller.ledger import Committed
from flodl.distributed.protocol.messages import WindowReport
from flodl.metrics.epoch import EpochMetrics


@dataclass(kw_only=True, slots=True)
class MemberTally:
    """Sums of one member over an epoch; means are weighted by samples."""

    batches: int = 0
    samples: int = 0
    time_ms: float = 0.0
    starve_ms: float = 0.0
    compute_ms: float = 0.0
    loss_sum: float = 0.0
    loss_samples: int = 0
    lr: float | None = None
    scalar_sums: dict[str, float] = field(default_factory=dict)
    scalar_samples: dict[str, int] = field(default_factory=dict)

    def add(self, report: WindowReport, batches: int, samples: int, share: float) -> None:
        """Add what a member did in a window.

        Args:
            report: Its report of the window.
            batches: Batches that belong to this epoch.
            samples: Samples that do.
            share: What of the window's work that is, from 0 to 1.
        """
        telemetry = report.telemetry
        time_ms = report.wall_ms if report.delivered_ms is None else report.delivered_ms
        self.batches += batches
        self.samples += samples
        self.time_ms += share * time_ms
        self.starve_ms += share * telemetry.timing.get("starve_ms", 0.0)
        self.compute_ms += share * telemetry.timing.get("compute_ms", report.wall_ms)
        self.lr = self.lr if telemetry.lr is None else telemetry.lr
        if telemetry.loss is not None and samples > 0:
            self.loss_sum += telemetry.loss * samples
            self.loss_samples += samples
        for name, value in telemetry.scalars.items():
            self.scalar_sums[name] = self.scalar_sums.get(name, 0.0) + value * samples
            self.scalar_samples[name] = self.scalar_samples.get(name, 0) + samples

    @property
    def loss(self) -> float | None:
        """Mean loss; ``None`` where none was measured."""
        return self.loss_sum / self.loss_samples if self.loss_samples else None

    @property
    def scalars(self) -> dict[str, float]:
        """Mean of each scalar."""
        return {
            name: total / self.scalar_samples[name]
            for name, total in self.scalar_sums.items()
            if self.scalar_samples[name]
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Identified:
    """What people see of a member."""

    uid: str
    number: int
    host: str
    device_index: int


@dataclass(kw_only=True, slots=True)
class EpochTally:
    """Sums of all members over one epoch."""

    epoch: int
    started_at: float
    windows: int = 0
    divergence: float | None = None
    lost: list[int] = field(default_factory=list)
    """Numbers of members, as ``joined``."""
    joined: list[int] = field(default_factory=list)
    members: dict[str, MemberTally] = field(default_factory=dict)

    def of(self, uid: str) -> MemberTally:
        """Return the sums of a member, which start at its first window."""
        tally = self.members.get(uid)
        if tally is None:
            tally = self.members[uid] = MemberTally()
        return tally

    def metrics(
        self,
        who: Mapping[str, Identified],
        *,
        now: float,
        world_size: int,
        generation: int,
        anchor: int,
        phase: str,
    ) -> EpochMetrics:
        """Return the epoch as people see it; lists are by the numbers of members."""
        order = sorted(self.members, key=lambda uid: who[uid].number)
        tallies = [self.members[uid] for uid in order]
        samples = sum(tally.samples for tally in tallies)
        rates = [tally.lr for tally in tallies if tally.lr is not None]
        return EpochMetrics(
            epoch=self.epoch,
            avg_loss=_mean([(tally.loss_sum, tally.loss_samples) for tally in tallies]),
            epoch_ms=(now - self.started_at) * 1000,
            batches_processed=sum(tally.batches for tally in tallies),
            samples_processed=samples,
            scalars=_weighted_scalars(tallies),
            lr=rates[0] if rates else math.nan,
            world_size=world_size,
            per_rank_loss=[tally.loss for tally in tallies],
            per_rank_scalars=[tally.scalars for tally in tallies],
            per_rank_samples=[tally.samples for tally in tallies],
            per_rank_time_ms=[tally.time_ms for tally in tallies],
            per_rank_throughput=[
                tally.samples / tally.time_ms if tally.time_ms > 0 else 0.0 for tally in tallies
            ],
            per_rank_batch_share=[tally.samples / samples if samples else 0.0 for tally in tallies],
            per_rank_data_starve_ms=[tally.starve_ms for tally in tallies],
            per_rank_compute_only_ms=[tally.compute_ms for tally in tallies],
            device_indices=[who[uid].device_index for uid in order],
            rank_hosts=[who[uid].host for uid in order],
            member_ids=[who[uid].number for uid in order],
            generation=generation,
            windows=self.windows,
            anchor=anchor,
            phase=phase,
            divergence=self.divergence,
            lost=list(self.lost),
            joined=list(self.joined),
        )

    def to_state(self) -> dict[str, Any]:
        """Return plain values that ``from_state`` takes."""
        return dataclasses.asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> EpochTally:
        """Return the tally that ``to_state`` described."""
        members = {uid: MemberTally(**item) for uid, item in state["members"].items()}
        return cls(**{**state, "members": members})


def row_of(report: WindowReport, *, steps: int, samples: int) -> dict[str, float]:
    """Return what a report says to people, by name; scalars and times are among it.

    Args:
        report: The report.
        steps: Steps that it is about.
        samples: Samples that it is about.
    """
    telemetry = report.telemetry
    loss = {} if telemetry.loss is None else {"loss": telemetry.loss}
    return {
        "steps": float(steps),
        "samples": float(samples),
        "wall_ms": report.wall_ms,
        **loss,
        **telemetry.scalars,
        **telemetry.timing,
        **telemetry.resources,
    }


def add_window(
    tallies: Mapping[int, EpochTally], uid: str, report: WindowReport, done: Committed
) -> None:
    """Add what a member did in a committed window to the epochs that it belongs to."""
    for epoch, (batches, samples) in done.by_epoch.items():
        tally = tallies.get(epoch)
        if tally is not None:
            tally.of(uid).add(report, batches, samples, samples / done.samples)


def add_work(tallies: Mapping[int, EpochTally], uid: str, done: Committed) -> None:
    """Add work that counts and of which no report will come."""
    for epoch, (batches, samples) in done.by_epoch.items():
        tally = tallies.get(epoch)
        if tally is not None:
            member = tally.of(uid)
            member.batches += batches
            member.samples += samples


def _mean(parts: list[tuple[float, int]]) -> float:
    count = sum(samples for _, samples in parts)
    return math.fsum(total for total, _ in parts) / count if count else math.nan


def _weighted_scalars(tallies: list[MemberTally]) -> dict[str, float]:
    names = sorted({name for tally in tallies for name in tally.scalar_sums})
    return {
        name: _mean(
            [
                (tally.scalar_sums[name], tally.scalar_samples[name])
                for tally in tallies
                if name in tally.scalar_sums
            ]
        )
        for name in names
    }
