"""What happens in a run over several ranks, as events of its timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING

from flodl.records.events import EventKind

if TYPE_CHECKING:
    from flodl.distributed.controller.commands import PublishWindow
    from flodl.distributed.protocol.messages import CallbackDone
    from flodl.metrics.epoch import EpochMetrics

_GUARD = "guard."
"""Begins the names of what the convergence guard measured, among the values of a window."""
Place = Callable[[EventKind, float], object]
"""Puts an event on a timeline, so many milliseconds ago."""


class Chronicle:
    """Places the events of a run; it belongs to whoever is told of them.

    Args:
        place: Where events go.
        on_cpu: Whether averages are made on the CPU, beside the steps.
        checkpoint_path: Where checkpoints are written.
    """

    def __init__(self, place: Place, *, on_cpu: bool, checkpoint_path: str = "") -> None:
        self._place = place
        self._on_cpu = on_cpu
        self._checkpoint_path = checkpoint_path
        self._epoch: int | None = None
        self._anchor: int | None = None
        self._deltas: dict[int, float] = {}
        self._seen: list[float] = []
        self._steps = 0
        self._windows = 0

    def drifted(self, rank: int, delta: float) -> None:
        """Take note of how far a rank was from the average that it has just taken over."""
        self._deltas[rank] = delta

    def enter(self, epoch: int, ago_ms: float = 0.0) -> None:
        """Tell of an epoch that begins, once."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._seen, self._windows = [], 0
            self._place(EventKind.epoch_start(epoch=epoch), ago_ms)

    def window(self, command: PublishWindow) -> None:
        """Tell of a window: its average, how far ranks were apart, and what the cadence learned."""
        values = command.values
        self.enter(command.epoch, values.get("window_ms", 0.0))
        self._windows += 1
        self._steps = round(
            max((row.get("steps", 0.0) for row in command.per_member.values()), default=0)
        )
        self._average(values.get("reduce_ms", 0.0))
        self._divergence(command)
        self._guard(command)
        self._move_anchor(values)

    def epoch_ended(self, metrics: EpochMetrics) -> None:
        """Tell of the end of an epoch, and how far ranks were apart in it."""
        event = EventKind.epoch_end(epoch=metrics.epoch, loss=metrics.avg_loss, lr=metrics.lr)
        self._place(event, 0.0)
        if self._seen:
            event = EventKind.divergence_epoch(
                epoch=metrics.epoch,
                sync_count=self._windows,
                d_min=min(self._seen),
                d_max=max(self._seen),
                d_mean=fmean(self._seen),
                d_end=self._seen[-1],
                k_end=self._steps,
            )
            self._place(event, 0.0)

    def callback_done(self, done: CallbackDone) -> None:
        """Tell of an evaluation or a checkpoint, when it is done."""
        if not done.ok:
            return
        if done.kind == "eval":
            self._place(EventKind.eval(ms=done.ms), 0.0)
        elif done.kind != "seal":  # what is sealed was told by the ranks that wrote it
            self._place(EventKind.checkpoint(ms=done.ms, path=self._checkpoint_path), 0.0)

    def throttled(self, rank: int) -> None:
        """Tell that a rank has to wait for the others."""
        self._place(EventKind.throttle(rank=rank), 0.0)

    def missed(self, control: str) -> None:
        """Tell that a rank could not take a message of the controller."""
        self._place(EventKind.lost_broadcast(control=control, failures=1), 0.0)

    def fell_back(self, reason: str) -> None:
        """Tell that a rank takes its steps without a graph, though it was not asked to."""
        self._place(EventKind.graph_capture(ok=False, reason=reason), 0.0)

    def lost(self, rank: int) -> None:
        """Tell that a rank is gone."""
        self._place(EventKind.rank_lost(rank=rank), 0.0)

    def _average(self, ms: float) -> None:
        if ms <= 0:
            return
        if self._on_cpu:
            self._place(EventKind.cpu_avg_start(), ms)
            self._place(EventKind.cpu_avg_end(ms=ms), 0.0)
        else:
            self._place(EventKind.sync_start(), ms)
            self._place(EventKind.sync_end(ms=ms), 0.0)

    def _guard(self, command: PublishWindow) -> None:
        """Tell what the convergence guard measured in a window."""
        values = command.values
        seen = {
            key.removeprefix(_GUARD): value
            for key, value in values.items()
            if key.startswith(_GUARD)
        }
        if seen:
            step = round(values.get("global_step", 0.0))
            event = EventKind.guard_telemetry(epoch=command.epoch, step=step, values=seen)
            self._place(event, 0.0)

    def _move_anchor(self, values: Mapping[str, float]) -> None:
        """Tell where the anchor has gone, and that it was a nudge where it was one."""
        anchor = round(values["anchor"]) if "anchor" in values else self._anchor
        before = round(values["nudged_from"]) if "nudged_from" in values else self._anchor
        if anchor is not None and before is not None and "nudged_by" in values:
            event = EventKind.meta_nudge(factor=values["nudged_by"], old=before, new=anchor)
            self._place(event, 0.0)
        if anchor is not None and before is not None and anchor != before:
            self._place(EventKind.anchor_changed(old=before, new=anchor), 0.0)
        self._anchor = anchor

    def _divergence(self, command: PublishWindow) -> None:
        deltas, self._deltas = self._deltas, {}
        found = command.values.get("divergence")
        if found is None:
            return
        self._seen.append(found)
        steps = [round(row.get("steps", 0.0)) for row in command.per_member.values()]
        event = EventKind.divergence(
            d=found,
            # the rank that the anchor is counted on is the slowest one
            k_used=min(filter(None, steps), default=0),
            k_max=max(steps, default=0),
            step=round(command.values.get("global_step", 0.0)),
            deltas=[deltas[rank] for rank in sorted(deltas)],
            epoch=command.epoch,
            **_rates(command.values),
        )
        self._place(event, 0.0)


def _rates(values: Mapping[str, float]) -> dict[str, float]:
    named = {"lambda_": values.get("lambda_raw"), "lambda_ema": values.get("lambda_ema")}
    return {name: value for name, value in named.items() if value is not None}
