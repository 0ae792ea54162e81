"""Gives duties to members, and takes what comes of them."""

from __future__ import annotations

from flodl.distributed.controller.commands import PublishEval
from flodl.distributed.controller.duties import (
    FAILURES_TO_REPLACE,
    MOST_ATTEMPTS,
    Duty,
    abandon,
    again,
    due_after_epoch,
    due_after_window,
    elect,
)
from flodl.distributed.controller.exact import exact_state
from flodl.distributed.controller.meta import checkpoint_meta
from flodl.distributed.controller.roster import Member
from flodl.distributed.controller.run import Run, RunState
from flodl.distributed.protocol.messages import CallbackDone, RunCallback
from flodl.distributed.protocol.values import Plain

_FAILURE_CODES = {"eval": "eval_failed", "checkpoint": "checkpoint_failed", "final": "final_failed"}


def queue_after_epoch(run: Run, epoch: int) -> None:
    """Put what is due at the end of an epoch on the desk."""
    is_last = epoch == run.settings.plan.num_epochs - 1
    run.desk.waiting += due_after_epoch(run.settings.duties, epoch, run.version, is_last=is_last)


def queue_after_window(run: Run, epoch: int) -> None:
    """Put what is due after a window on the desk."""
    run.desk.waiting += due_after_window(run.settings.duties, epoch, run.version)


def queue_checkpoint(run: Run, reason: str) -> None:
    """Put a checkpoint of the state as it is on the desk, if there is a place for it."""
    rules = run.settings.duties
    if rules.save_path is not None:
        run.desk.waiting.append(
            Duty(
                kind="checkpoint",
                epoch=run.epoch,
                version=run.version,
                reason=reason,
                stem=rules.save_path,
                mode=rules.checkpoint_mode,
            )
        )


def queue_final(run: Run, reason: str, *, save: bool) -> None:
    """Put a last checkpoint, where one is wanted, and the final state on the desk."""
    if save:
        queue_checkpoint(run, reason)
    run.desk.waiting.append(Duty(kind="final", epoch=run.epoch, version=run.version, reason=reason))


def start_waiting(run: Run) -> None:
    """Give waiting duties to members; every member has the consensus, and stands still.

    What members are told after this, they take up when they have done, or copied, their part.
    """
    waiting, run.desk.waiting = run.desk.waiting, []
    for duty in waiting:
        duty.version = run.version
        workers = _workers(run, duty)
        if not workers:
            run.alert(_FAILURE_CODES[duty.kind], f"no member is left for {duty.kind}", "error")
            continue
        duty.parts = len(workers)
        if duty.kind != "eval":
            duty.meta = checkpoint_meta(run, duty.reason)
        if duty.is_joint and duty.mode == "exact":
            duty.meta["exact"] = exact_state(run)
        for part, uid in enumerate(workers):
            duty.running[part] = uid
            _start_part(run, duty, part, uid)
        run.desk.running.append(duty)
    _watch(run)


def _workers(run: Run, duty: Duty) -> list[str]:
    members = [member.uid for member in run.active()]
    if duty.kind == "eval" and run.settings.duties.eval_parallel and not duty.failed:
        return members
    wanted = _elected(run, duty)
    if wanted is None:
        return []
    if duty.is_joint:
        duty.lead = members.index(wanted)
        return members
    return [wanted]


def _elected(run: Run, duty: Duty) -> str | None:
    """Return the member that does a duty, or leads it; ``None`` when none is left."""
    members = [member.uid for member in run.active()]
    candidates = [uid for uid in members if uid not in duty.failed] or members
    wanted = _bound_member(run, candidates)
    if wanted is None:
        wanted = elect(candidates, run.speeds(), run.desk.elected)
    if wanted is not None and wanted != run.desk.elected:
        run.desk.elected, run.desk.failures = wanted, 0
    return wanted


def _bound_member(run: Run, candidates: list[str]) -> str | None:
    """Return the member that the user chose by number, while it is there."""
    number = run.settings.duties.policy_rank
    if number is None:
        return None
    chosen = [uid for uid in candidates if run.roster.members[uid].number == number]
    if not chosen and run.desk.elected is None:
        run.alert("callback_rank_lost", f"rank{number} is gone: the fastest rank takes over")
    return chosen[0] if chosen else None


def _start_part(run: Run, duty: Duty, part: int, uid: str) -> None:
    _stage_slack(run, duty, uid)
    is_lead = part == duty.lead or not duty.is_joint
    # what only the list holds is sent once, with the order to write it
    meta = {name: value for name, value in duty.meta.items() if name != "exact"}
    _tell(run, duty, part, uid, meta if is_lead else {})


def _stage_slack(run: Run, duty: Duty, uid: str) -> None:
    """Give a member time for what it has to do, unless decisions must not depend on time."""
    expected, elche = run.desk.expected_ms.get(duty.kind), run.elche
    if expected is None or elche is None or run.settings.elche.deterministic is not None:
        return
    if uid in elche.members:
        shared = expected if duty.is_joint else expected / duty.parts
        elche.stage_slack(elche.members.index(uid), shared)


def _tell(run: Run, duty: Duty, part: int, uid: str, meta: dict[str, Plain]) -> None:
    run.send(
        uid,
        RunCallback(
            kind=duty.step,
            epoch=duty.epoch,
            version=duty.version,
            attempt=duty.attempt,
            part=part,
            parts=duty.parts,
            stem=duty.stem,
            reason=duty.reason,
            meta=meta,
            mode=duty.mode if duty.is_joint else "full",
            lead=duty.lead,
            draft=duty.draft,
            files=duty.files,
        ),
    )


def _seal(run: Run, duty: Duty) -> None:
    """Have the parts that all members have written made into one checkpoint."""
    duty.is_sealing = True
    duty.files = tuple(file for part in sorted(duty.done) for file in duty.done[part].files)
    duty.done = {}
    wanted = _elected(run, duty)
    if wanted is None:
        run.desk.running.remove(duty)
        _give_up(run, duty, "no member is left to seal it")
        return
    duty.running[duty.lead] = wanted
    _tell(run, duty, duty.lead, wanted, duty.meta)


def _watch(run: Run) -> None:
    """Let the desk's timer follow what runs."""
    timeouts = run.settings.timeouts
    if not run.desk.running:
        run.clear_deadlines("callback")
        return
    has_eval = any(duty.kind == "eval" for duty in run.desk.running)
    run.set_deadline(
        "callback", timeouts.eval_callback if has_eval else timeouts.checkpoint_callback
    )


def on_callback_done(run: Run, member: Member, message: CallbackDone) -> None:
    """Take a result; when the duty failed, another member tries it."""
    duty = run.desk.find(message)
    if duty is None or duty.running.get(message.part) != member.uid:
        return
    if not message.ok:
        _failed(run, duty, member.uid, message.error)
        return
    del duty.running[message.part]
    duty.done[message.part] = message
    if message.kind == "seal":
        run.desk.running.remove(duty)
    elif duty.is_done:
        _completed(run, duty)
    run.desk.failures = 0
    _watch(run)


def _completed(run: Run, duty: Duty) -> None:
    """Take the results of all parts."""
    run.desk.took(duty.kind, max(item.ms for item in duty.done.values()))
    if duty.is_joint:
        _seal(run, duty)
        return
    run.desk.running.remove(duty)
    if duty.kind == "eval":
        run.emit(PublishEval(epoch=duty.epoch, values=duty.values()))


def _failed(run: Run, duty: Duty, uid: str, error: str) -> None:
    run.desk.running.remove(duty)
    run.desk.failures += 1
    if run.desk.failures >= FAILURES_TO_REPLACE:
        run.desk.elected, run.desk.failures = None, 0
    code = _FAILURE_CODES[duty.kind]
    if duty.attempt < MOST_ATTEMPTS:
        run.alert(code, f"{duty.kind} of epoch {duty.epoch}: {error}; it is tried again")
        run.desk.waiting.append(again(duty, uid))
    else:
        _give_up(run, duty, error)
    if run.state is RunState.SAVING:
        start_waiting(run)  # nobody trains: the state is that of the last window
    _watch(run)


def on_member_lost(run: Run, uid: str) -> None:
    """Have what a lost member did done by others, unless it was tried often enough."""
    for duty in abandon(run.desk, uid):
        _give_up(run, duty, "the member that did it was lost")


def _give_up(run: Run, duty: Duty, error: str) -> None:
    text = f"{duty.kind} of epoch {duty.epoch}: {error}; given up"
    run.alert(_FAILURE_CODES[duty.kind], text, "error")


def on_callback_overdue(run: Run) -> None:
    """Take everything that runs for failed."""
    for duty in list(run.desk.running):
        uid = next(iter(duty.running.values()), "")
        _failed(run, duty, uid, "no result in time")
