"""Going on exactly where a checkpoint was made: what the controller keeps for it, and takes up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from flodl.distributed.controller.ledger import Ledger
from flodl.distributed.controller.meta import restore
from flodl.distributed.controller.roster import Member
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.controller.tallies import EpochTally
from flodl.distributed.elche import DriftRate, ElChe, LrRamp
from flodl.distributed.protocol.values import Plain


def exact_state(run: Run) -> dict[str, Plain]:
    """Return what decisions depend on besides what every checkpoint holds."""
    state: dict[str, Plain] = json.loads(
        json.dumps(
            {
                "settings": _settings(run),
                "last_window": run.last_window,
                "ledger": run.ledger.to_state(),
                "tallies": [tally.to_state() for tally in run.tallies.values()],
                "drift": dataclasses.asdict(run.drift),
                "ramp": dataclasses.asdict(run.ramp),
                "overshoot": run.overshoot.grown,
                "reduce_ema_s": run.reduce_ema_s,
                "elected": run.desk.elected,
                "expected_ms": run.desk.expected_ms,
            }
        )
    )
    return state


def take_up(run: Run, members: list[Member]) -> bool:
    """Let the first generation go on as the ranks of the checkpoint, if it can.

    It can when there are as many members, on the same devices; else the run goes on from what
    every checkpoint holds. Returns whether the run goes on.
    """
    meta = run.resumed_from
    if run.started or "exact" not in meta:
        return True
    run.heirs = ()
    problem = _problem(run, meta, members)
    if problem is None:
        _restore_exactly(run, meta, members)
        return True
    if run.settings.exact_strict:
        run.go(RunState.FAILED, f"exact_resume: {problem}")
        return False
    run.alert("exact_resume", f"{problem}: the run goes on, but not exactly as it would have")
    restore(run, meta)
    return True


def _settings(run: Run) -> dict[str, Plain]:
    """Return the settings without which what ranks have kept of their own means something else."""
    elche, plan = run.settings.elche, run.settings.plan
    return {
        "mode": elche.mode.value,
        "sync_payload": elche.payload,
        "center": elche.center,
        "bf16_wire": elche.bf16_wire,
        "wire_error_feedback": elche.error_feedback,
        "batch_size": plan.batch_size,
        "epoch_splits": plan.splits,
    }


def _problem(run: Run, meta: Mapping[str, Any], members: list[Member]) -> str | None:
    saved = [member["device"] for member in meta["members"]]
    devices = [member.device for member in members]
    if len(saved) != len(devices):
        return f"the checkpoint is of {len(saved)} ranks, and there are {len(devices)}"
    if saved != devices:
        return f"the checkpoint is of ranks on {', '.join(saved)}; these are {', '.join(devices)}"
    before = meta["exact"]["settings"]
    for name, value in _settings(run).items():
        if before.get(name) != value:
            return f"the checkpoint is of {name}={before.get(name)!r}, and this run of {value!r}"
    return None


def _restore_exactly(run: Run, meta: Mapping[str, Any], members: list[Member]) -> None:
    heirs = tuple(member.uid for member in members)
    names = {member["uid"]: uid for member, uid in zip(meta["members"], heirs, strict=True)}
    restore(run, meta)
    state = renamed(meta["exact"], names)
    run.last_window = state["last_window"]
    run.ledger = Ledger.from_state(run.settings.plan, state["ledger"])
    tallies = [EpochTally.from_state(item) for item in state["tallies"]]
    run.tallies = {tally.epoch: tally for tally in tallies}
    for tally in tallies:
        tally.started_at = run.now
    if run.elche is not None:
        run.elche = ElChe.from_state(renamed(meta["elche"], names), run.settings.elche)
        run.devices = {member.uid: member.device for member in members}
    run.drift = DriftRate(**state["drift"])
    run.ramp = LrRamp(**state["ramp"])
    run.overshoot.grown = state["overshoot"]
    run.reduce_ema_s = state["reduce_ema_s"]
    run.desk.elected = state["elected"]
    run.desk.expected_ms = dict(state["expected_ms"])
    run.heirs = heirs


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return plain values in which members bear other names, as keys and as values."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {names.get(key, key): renamed(item, names) for key, item in value.items()}
    return value
