"""A run as plain values, for the journal from which a restarted controller goes on."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from flodl.distributed.controller.duties import DutyDesk
from flodl.distributed.controller.ledger import Ledger
from flodl.distributed.controller.roster import MemberState, Roster
from flodl.distributed.controller.run import OVER, Ending, Run, RunState
from flodl.distributed.controller.settings import RunSettings
from flodl.distributed.controller.tallies import EpochTally
from flodl.distributed.controller.window import Window
from flodl.distributed.elche import DriftRate, ElChe, LrRamp, MetaController
from flodl.distributed.protocol import schema
from flodl.distributed.protocol.messages import RankError

WINDOWS_WRITTEN = 20
"""Rows of the window log that are written down: a state is written before every average."""

PLAIN = (
    "gen",
    "version",
    "last_window",
    "global_step",
    "next_epoch",
    "started",
    "is_resumed",
    "devices",
    "reduce_ema_s",
    "stalled_reduces",
)


def saved(run: Run) -> dict[str, Any]:
    """Return a run as plain values."""
    history = run.history
    return {
        "state": run.state.value,
        "reason": run.reason,
        "world": list(run.world),
        **{name: getattr(run, name) for name in PLAIN},
        "ending": None if run.ending is None else dataclasses.asdict(run.ending),
        "roster": run.roster.to_state(),
        "ledger": run.ledger.to_state(),
        "window": None if run.window is None else run.window.to_state(),
        "lost": list(run.recovery.lost),
        "tallies": {str(epoch): tally.to_state() for epoch, tally in run.tallies.items()},
        "desk": run.desk.to_state(),
        "elche": None if run.elche is None else run.elche.to_state(exact=True),
        "guard": run.guard.state(),
        "drift": dataclasses.asdict(run.drift),
        "meta": run.meta.to_state(),
        "ramp": dataclasses.asdict(run.ramp),
        "overshoot": run.overshoot.grown,
        "deaths": list(history.deaths),
        "generations": list(history.generations),
        "windows": list(history.windows)[-WINDOWS_WRITTEN:],
        "errors": [schema.write(error) for error in history.errors],
        "error_counts": dict(history.error_counts),
        "void_windows": history.void_windows,
        "late_snapshots": history.late_snapshots,
    }


def restore(settings: RunSettings, state: dict[str, Any], now: float) -> Run:
    """Return the run, about to find out which of its members are still there."""
    run = Run(settings)
    run.now = now
    for name in PLAIN:
        setattr(run, name, state[name])
    run.world = tuple(state["world"])
    run.ending = None if state["ending"] is None else Ending(**state["ending"])
    run.roster = Roster.from_state(state["roster"])
    run.ledger = Ledger.from_state(settings.plan, state["ledger"])
    run.window = None if state["window"] is None else Window.from_state(state["window"])
    run.recovery.lost = list(state["lost"])
    run.tallies = {int(key): EpochTally.from_state(item) for key, item in state["tallies"].items()}
    run.desk = DutyDesk.from_state(state["desk"])
    if state["elche"] is not None:
        run.elche = ElChe.from_state(state["elche"], settings.elche)
        run.take_counts()
    run.guard.load(state["guard"])
    run.drift = DriftRate(**state["drift"])
    run.meta = MetaController.from_state(state["meta"])
    run.ramp = LrRamp(**state["ramp"])
    run.overshoot.grown = state["overshoot"]
    _restore_history(run, state)
    _find_members(run, RunState(state["state"]), state["reason"])
    return run


def _restore_history(run: Run, state: dict[str, Any]) -> None:
    history = run.history
    history.deaths = list(state["deaths"])
    history.generations = list(state["generations"])
    history.windows.extend(state["windows"])
    history.errors = [schema.read(RankError, item) for item in state["errors"]]
    history.error_counts = dict(state["error_counts"])
    history.void_windows = state["void_windows"]
    history.late_snapshots = state.get("late_snapshots", 0)


def _find_members(run: Run, before: RunState, reason: str) -> None:
    """Take the clock of this process, and ask for the state in which members are found."""
    run.last_growth = -math.inf
    for host in run.roster.hosts.values():
        host.seen_at = run.now
    for member in run.roster:
        member.since = member.stepped_at = run.now
        member.is_awaited = member.state is MemberState.ACTIVE
        if member.state is MemberState.BOOTING:
            run.set_deadline(f"boot:{member.uid}", run.settings.timeouts.boot)
        if member.state is MemberState.FENCING:
            run.recovery.fencing.add(member.uid)
            run.set_deadline(f"fence:{member.uid}", run.settings.timeouts.fence_ack)
    for tally in run.tallies.values():
        tally.started_at = run.now
    if before in OVER:
        run.state, run.reason = before, reason
        return
    run.alert("controller_restarted", f"window {run.version}, generation {run.gen}", "error")
    run.go(RunState.RECONFIGURING if run.started or run.world else RunState.WAITING, "restart")
