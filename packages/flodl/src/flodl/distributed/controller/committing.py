"""What a completed average means: work counts, the cadence learns, epochs end."""

from __future__ import annotations

import math

from flodl.distributed.config import (
    STABLE,
    DivergenceReport,
    Verdict,
    VerdictKind,
)
from flodl.distributed.controller.callbacks import queue_after_epoch, queue_after_window
from flodl.distributed.controller.commands import PublishEpoch, PublishWindow
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.controller.tallies import EpochTally, Identified, add_window, row_of
from flodl.distributed.controller.window import Window, WindowState
from flodl.distributed.controller.work import open_next_epoch
from flodl.distributed.elche import NoGuard
from flodl.distributed.elche.speed import reading_times
from flodl.metrics.epoch import EpochMetrics

SMOOTHING = 0.3


def commit(run: Run, window: Window) -> None:
    """Count a window's work, and let the cadence learn from it."""
    if window.state is not WindowState.REDUCING:
        for uid in window.members:  # nothing was averaged: everyone has the result already
            run.roster.members[uid].version = window.number
    window.state = WindowState.COMMITTED
    run.clear_deadlines("barrier", "ahead", "reduce", "slow_window", "snapshot")
    run.version = window.number
    run.stalled_reduces = 0
    epoch = run.epoch
    _count_work(run, window)
    reduce_ms = (run.now - window.reduce_at) * 1000 if window.reduced else 0.0
    learned = {} if run.is_grads else _learn(run, window, reduce_ms)
    run.ramp.advance()
    tally = run.tallies.get(epoch)
    if tally is not None:
        tally.windows += 1
        tally.divergence = learned.get("divergence", tally.divergence)
    queue_after_window(run, epoch)
    _publish(run, window, epoch, reduce_ms, learned)
    roll_over(run)


def _count_work(run: Run, window: Window) -> None:
    if run.is_grads:
        return  # counted at each report
    for uid in window.members:
        if uid in window.late:
            continue
        if uid in window.excluded:
            run.ledger.skip(uid)
            continue
        done = run.ledger.commit(uid)
        run.global_step += done.batches
        report = window.reports.get(uid)
        if report is not None:
            add_window(run.tallies, uid, report, done)


def _learn(run: Run, window: Window, reduce_ms: float) -> dict[str, float]:
    """Feed the cadence and its guards; returns what they found and did, as far as there is any."""
    run.reduce_ema_s += SMOOTHING * (reduce_ms / 1000 - run.reduce_ema_s)
    if run.settings.elche.deterministic is not None or run.elche is None:
        return {}
    members = run.elche.members
    reports = [window.reports.get(uid) for uid in members]
    batches = [0 if report is None else report.steps for report in reports]
    wall = reading_times(
        [0.0 if report is None else report.wall_ms for report in reports],
        [None if report is None else report.delivered_ms for report in reports],
        batches,
    )
    fill = [0.0 if report is None else report.fill_ms for report in reports]
    run.elche.report_window(wall, batches, reduce_ms, fill)
    found = _divergence(window)
    verdict = _judge(run, window, found, batches)
    learned = {} if found is None else {"divergence": found.divergence, **_guard_values(run)}
    if verdict.kind is VerdictKind.NUDGE_DOWN:
        learned |= {"nudged_by": verdict.factor, "nudged_from": float(run.elche.anchor)}
    run.elche.apply_verdict(verdict)
    run.overshoot.apply(verdict)
    return learned


def _divergence(window: Window) -> DivergenceReport | None:
    deltas = {uid: done.delta for uid, done in window.reduced.items() if done.delta is not None}
    if not deltas:
        return None
    norms = [done.post_norm for done in window.reduced.values() if done.post_norm is not None]
    return DivergenceReport(
        window=window.number,
        divergence=max(deltas.values()),
        deltas=deltas,
        pre_norms={
            uid: done.pre_norm for uid, done in window.reduced.items() if done.pre_norm is not None
        },
        post_norm=norms[0] if norms else math.nan,
    )


def _judge(run: Run, window: Window, found: DivergenceReport | None, batches: list[int]) -> Verdict:
    """Ask the guard, then the meta-controller."""
    verdict = STABLE
    elche = run.cadence
    if found is not None and not run.settings.elche.mode.is_sync:
        k_max = max(batches)
        rank = elche.anchor_rank
        run.drift.take(found.divergence, k_max)
        verdict = _ask_guard(run, found, k_max if rank is None else batches[rank], k_max)
        if verdict.kind is VerdictKind.NUDGE_DOWN:
            text = f"divergence {found.divergence:.3g}: the anchor shrinks to {verdict.factor:.2g}"
            run.alert("drift", f"{text} of {elche.anchor}")
    if not run.settings.elche.meta_controller or run.settings.elche.mode.is_sync:
        return verdict
    rates = (report.telemetry.lr for report in window.reports.values())
    lr = next((rate for rate in rates if rate is not None), None)
    return run.meta.observe(lr, elche.anchor, verdict, elche.phase)


def _ask_guard(run: Run, found: DivergenceReport, k_used: int, k_max: int) -> Verdict:
    try:
        return run.guard.report(found, k_used, k_max)
    # A guard may be a user's own: whatever it raises must not end the run.
    except Exception as error:  # noqa: BLE001
        _part_with_guard(run, error)
        return STABLE


def _guard_values(run: Run) -> dict[str, float]:
    """Return what the guard measured, for the records."""
    try:
        return {f"guard.{key}": float(value) for key, value in run.guard.telemetry().items()}
    except Exception as error:  # noqa: BLE001 - as above
        _part_with_guard(run, error)
        return {}


def _part_with_guard(run: Run, error: Exception) -> None:
    run.alert("guard_failed", f"guard raised {error!r}: the run goes on without one", "error")
    run.guard = NoGuard()


def _publish(
    run: Run, window: Window, epoch: int, reduce_ms: float, learned: dict[str, float]
) -> None:
    elche = run.cadence
    values = {
        "window_ms": (run.now - window.opened_at) * 1000,
        "reduce_ms": reduce_ms,
        "anchor": float(elche.anchor),
        "samples": float(sum(window.samples(uid) for uid in window.members)),
        "global_step": float(run.global_step),
        **run.drift.telemetry(),
        **learned,
    }
    # where steps are averaged, each report was published when it came
    reports = {} if run.is_grads else window.reports
    per_member = {
        uid: row_of(report, steps=report.steps, samples=window.samples(uid))
        for uid, report in reports.items()
    }
    run.emit(PublishWindow(window=window.number, epoch=epoch, values=values, per_member=per_member))
    run.history.windows.append({"window": window.number, "gen": run.gen, "epoch": epoch, **values})


def roll_over(run: Run) -> None:
    """End the epochs that are complete, in order, and open the next one."""
    while run.ledger.open_epochs and run.ledger.is_complete(run.ledger.open_epochs[0]):
        epoch = run.ledger.open_epochs[0]
        run.ledger.close(epoch)
        tally = run.tallies.pop(epoch)
        run.emit(PublishEpoch(metrics=_metrics(run, tally)))
        queue_after_epoch(run, epoch)
    if not run.ledger.open_epochs and run.state is RunState.TRAINING:
        open_next_epoch(run)


def _metrics(run: Run, tally: EpochTally) -> EpochMetrics:
    who = {
        member.uid: Identified(
            uid=member.uid,
            number=member.number,
            host=member.host,
            device_index=member.device_index,
        )
        for member in run.roster
    }
    return tally.metrics(
        who,
        now=run.now,
        world_size=len(run.world),
        generation=run.gen,
        anchor=run.cadence.anchor,
        phase=run.cadence.phase.name.lower(),
    )
