"""How a rank trains: leases, windows, and averages."""

from __future__ import annotations

from flodl.distributed.config.modes import Payload
from flodl.distributed.lifecycle.rank_events import (
    ApplyCommit,
    BatchDone,
    CallbackEnded,
    ExecuteCallback,
    MeasureWindow,
    ReduceDone,
    ReduceFailed,
    StartReduce,
    TakeLease,
    WindowMeasured,
)
from flodl.distributed.lifecycle.rank_forming import settle_steps
from flodl.distributed.lifecycle.rank_state import Draft, Rank, RankState
from flodl.distributed.protocol.messages import (
    AtBarrier,
    Commit,
    Lease,
    LeaseAck,
    Reduced,
    ReduceGo,
    Resume,
    RunCallback,
    SyncNow,
    Throttle,
    WindowReport,
)
from flodl.distributed.protocol.ranges import beyond
from flodl.distributed.protocol.values import Target

REPORT_STEPS = 50
REPORT_SECONDS = 1.0


def on_sync_now(rank: Rank, message: SyncNow, now: float) -> None:
    """Take over when the window ends; the first time, begin to train.

    At the barrier too: it may end later than this rank was told at first. Where it does not, the
    rank comes to the barrier again.
    """
    if rank.state is RankState.READY:
        rank.state = RankState.TRAINING
        rank.work.asked = None
    elif rank.state is RankState.BARRIER and message.window == rank.window:
        rank.state, rank.is_averaging = RankState.TRAINING, False
    if message.window >= rank.window and not rank.is_averaging:
        _open(rank, message.window, message.payload, message.target, now)


def _open(rank: Rank, window: int, payload: Payload, target: Target | None, now: float) -> None:
    if window != rank.window:
        rank.reported_at, rank.reported_steps = now, 0
    rank.window, rank.payload, rank.target = window, payload, target
    _ask(rank)
    close_if_reached(rank, now)


def on_lease(rank: Rank, message: Lease) -> None:
    """Put a lease behind those that the rank has."""
    if rank.work.take(message):
        rank.emit(TakeLease(lease=message))
        _ask(rank)


def on_batch_done(rank: Rank, event: BatchDone, now: float) -> None:
    """Count a batch, ask for more in time, and see whether the window ends."""
    rank.work.train(event.lease_id, event.samples)
    rank.work.tally.add(event.samples, event.wall_ms, event.delivered_ms, is_first=event.is_first)
    if event.left_out:
        rank.work.tally.leave_out(event.left_out)
    _ask(rank)
    close_if_reached(rank, now)


def _ask(rank: Rank) -> None:
    wanted = rank.work.next_wanted()
    if wanted is not None:
        rank.send(LeaseAck(lease_id=wanted.lease_id, batches=wanted.batches))


def close_if_reached(rank: Rank, now: float) -> None:
    """Come to the barrier when the target is reached, or report on the way."""
    target, tally = rank.target, rank.work.tally
    is_open = rank.state is RankState.TRAINING and not rank.is_averaging
    if target is None or not is_open or rank.callback is not None:
        return
    if tally.has_reached(target, has_work=rank.work.has_work):
        rank.is_averaging = True
        _measure(rank, now)
        if rank.payload == "params":
            rank.state = RankState.BARRIER
    elif rank.payload == "grads":
        new_steps = tally.steps - rank.reported_steps
        is_due = now - rank.reported_at >= REPORT_SECONDS
        if new_steps >= REPORT_STEPS or (new_steps > 0 and is_due):
            _measure(rank, now)


def _measure(rank: Rank, now: float) -> None:
    tally = rank.work.tally
    rank.draft = Draft(
        window=rank.window,
        payload=rank.payload,
        trained=rank.work.progress(),
        steps=tally.steps,
        samples=tally.samples,
        wall_ms=tally.wall_ms,
        delivered_ms=tally.delivered_ms if tally.is_delivered_known else None,
        fill_ms=tally.fill_ms,
        left_out=beyond(tally.left_out, rank.reported_steps),
    )
    rank.reported_at, rank.reported_steps = now, tally.steps
    rank.emit(MeasureWindow(window=rank.window, payload=rank.payload, samples=tally.samples))
    rank.work.mark(goes_on=rank.payload == "snapshot")


def on_measured(rank: Rank, event: WindowMeasured) -> None:
    """Report the window, and that its payload is ready."""
    draft = rank.draft
    if draft is None or draft.window != event.window:
        return
    rank.draft = None
    rank.send(
        WindowReport(
            window=draft.window,
            trained=draft.trained,
            steps=draft.steps,
            wall_ms=draft.wall_ms,
            delivered_ms=draft.delivered_ms,
            fill_ms=draft.fill_ms,
            left_out=draft.left_out,
            is_finite=event.is_finite,
            payload_hash=event.payload_hash,
            telemetry=event.telemetry,
        )
    )
    if draft.payload != "grads":
        rank.send(
            AtBarrier(
                window=draft.window,
                samples=draft.samples,
                is_finite=event.is_finite,
                payload_hash=event.payload_hash,
            )
        )


def on_reduce_go(rank: Rank, message: ReduceGo) -> None:
    """Everyone is ready, or not waited for: start the collective."""
    is_late = rank.uid in message.late
    if message.window != rank.window or not (rank.is_averaging or is_late):
        return
    if is_late:
        rank.work.hold_back()
        rank.is_averaging = True
    rank.is_reducing = True
    if rank.state is RankState.BARRIER:
        rank.state = RankState.REDUCING
    tally = rank.work.tally if rank.work.marked is None else rank.work.marked
    rank.emit(StartReduce(go=message, weight=message.weight(rank.uid, tally.samples)))


def on_reduce_done(rank: Rank, event: ReduceDone) -> None:
    """The result was taken over: what went into it is done."""
    if event.window != rank.window or not rank.is_reducing:
        return
    rank.is_reducing = False
    rank.version = event.window
    rank.work.settle()
    rank.send(
        Reduced(
            window=event.window,
            ms=event.ms,
            delta=event.delta,
            pre_norm=event.pre_norm,
            post_norm=event.post_norm,
        )
    )


def on_reduce_failed(rank: Rank, event: ReduceFailed) -> None:
    """Tell that the collective ended with an error, and wait for a new generation."""
    if event.window == rank.window and rank.is_reducing:
        rank.is_reducing = False
        rank.send(Reduced(window=event.window, ok=False, error=event.error))


def on_commit(rank: Rank, message: Commit, now: float) -> None:
    """The window counts: go on with the next one."""
    if message.window != rank.window:
        return
    if rank.version < message.window:
        rank.work.settle()  # gradients counted at each step; or there was nothing to average
        rank.version = message.window
    rank.is_averaging = rank.is_throttled = False
    rank.emit(ApplyCommit(commit=message))
    rank.state = RankState.TRAINING
    _open(rank, message.next_window, message.payload, message.target, now)


def on_throttle(rank: Rank, message: Throttle) -> None:  # noqa: ARG001
    """Take no batch for now."""
    rank.is_throttled = True


def on_resume(rank: Rank, message: Resume) -> None:  # noqa: ARG001
    """Take batches again."""
    rank.is_throttled = False


def on_run_callback(rank: Rank, message: RunCallback) -> None:
    """Do something for all; the window waits for it."""
    rank.callback = message
    if rank.state is RankState.QUIESCED:
        settle_steps(rank)
    keeps_work = message.kind == "checkpoint" and message.mode == "exact"
    work = rank.work.to_state() if keeps_work else None
    rank.emit(ExecuteCallback(callback=message, work=work))


def on_callback_ended(rank: Rank, event: CallbackEnded, now: float) -> None:
    """Train on, and tell the result once it is there."""
    rank.callback = None
    if event.done is not None:
        rank.send(event.done)
    close_if_reached(rank, now)
