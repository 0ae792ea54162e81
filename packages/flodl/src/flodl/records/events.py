"""What can happen on a timeline, each kind with the fields it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class EventKind(NamedTuple):
    """One event, not yet placed in time; made by the named constructors."""

    kind: str
    fields: Mapping[str, Any]

    @classmethod
    def epoch_start(cls, *, epoch: int) -> EventKind:
        """An epoch begins."""
        return cls("epoch_start", {"epoch": epoch})

    @classmethod
    def epoch_end(
        cls, *, epoch: int, loss: float | None = None, lr: float | None = None
    ) -> EventKind:
        """An epoch ends."""
        return cls("epoch_end", {"epoch": epoch, "loss": loss, "lr": lr})

    @classmethod
    def sync_start(cls) -> EventKind:
        """Ranks begin to average on their devices."""
        return cls("sync_start", {})

    @classmethod
    def sync_end(cls, *, ms: float) -> EventKind:
        """They are done, after so many milliseconds."""
        return cls("sync_end", {"ms": ms})

    @classmethod
    def cpu_avg_start(cls) -> EventKind:
        """The average over the ranks begins on the CPU."""
        return cls("cpu_avg_start", {})

    @classmethod
    def cpu_avg_end(cls, *, ms: float) -> EventKind:
        """It is done, after so many milliseconds."""
        return cls("cpu_avg_end", {"ms": ms})

    @classmethod
    def anchor_changed(cls, *, old: int, new: int) -> EventKind:
        """The anchor of the cadence has moved."""
        return cls("anchor", {"from": old, "to": new})

    @classmethod
    def meta_nudge(cls, *, factor: float, old: int, new: int) -> EventKind:
        """The anchor was nudged by a factor."""
        return cls("meta_nudge", {"factor": factor, "from": old, "to": new})

    @classmethod
    def throttle(cls, *, rank: int) -> EventKind:
        """A rank was told to wait."""
        return cls("throttle", {"rank": rank})

    @classmethod
    def lost_broadcast(cls, *, control: str, failures: int) -> EventKind:
        """A control message did not reach every rank."""
        return cls("lost_broadcast", {"control": control, "failures": failures})

    @classmethod
    def divergence(
        cls, *, d: float, k_used: int, k_max: int, step: int, deltas: Sequence[float], **more: Any
    ) -> EventKind:
        """How far ranks were apart when they averaged.

        Args:
            d: Divergence.
            k_used: Steps since the average before.
            k_max: Steps that were allowed.
            step: Global optimizer step.
            deltas: Divergence of each rank.
            more: ``lambda_``, ``lambda_ema``, ``post_norm``, ``pre_norms``, ``epoch``.
        """
        base = {"d": d, "k_used": k_used, "k_max": k_max, "step": step, "deltas": list(deltas)}
        return cls("div", {**base, **{name.rstrip("_"): value for name, value in more.items()}})

    @classmethod
    def divergence_epoch(cls, *, epoch: int, sync_count: int, **more: Any) -> EventKind:
        """Divergence over an epoch: ``d_min``, ``d_max``, ``d_mean``, ``lambda_*`` and the like."""
        return cls("div_epoch", {"epoch": epoch, "sync_count": sync_count, **more})

    @classmethod
    def guard_telemetry(cls, *, epoch: int, step: int, values: Mapping[str, float]) -> EventKind:
        """What the convergence guard saw."""
        return cls("guard_telemetry", {"epoch": epoch, "step": step, "values": dict(values)})

    @classmethod
    def rank_lost(cls, *, rank: int) -> EventKind:
        """A rank is gone."""
        return cls("rank_lost", {"rank": rank})

    @classmethod
    def checkpoint(cls, *, ms: float, path: str) -> EventKind:
        """A checkpoint was written, in so many milliseconds."""
        return cls("checkpoint", {"ms": ms, "path": path})

    @classmethod
    def eval(cls, *, ms: float) -> EventKind:
        """An evaluation is done, after so many milliseconds."""
        return cls("eval", {"ms": ms})

    @classmethod
    def graph_capture(cls, *, ok: bool, reason: str | None = None) -> EventKind:
        """The step was captured as a GPU graph, or why it was not."""
        return cls("capture", {"ok": ok, "reason": reason})

    @classmethod
    def custom(cls, label: str) -> EventKind:
        """Whatever a user marks."""
        return cls("custom", {"label": label})
