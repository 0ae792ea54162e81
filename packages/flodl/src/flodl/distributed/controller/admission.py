"""Who is let in: identity, versions, duplicates, and room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flodl.distributed.controller.roster import Member, MemberState
from flodl.distributed.controller.run import OVER, Run, RunState
from flodl.distributed.protocol.codec import PROTOCOL
from flodl.distributed.protocol.messages import Hello, Reject
from flodl.distributed.protocol.values import Offer

MALFORMED, DUPLICATE, UNFIT, NOT_NOW = 4400, 4409, 4426, 4503
MOST_OFFERS = 256
CLOSED = OVER | {RunState.DRAINING, RunState.SAVING}


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a host is turned away."""

    code: int
    kind: str
    reason: str
    is_retryable: bool = False

    def message(self, uids: tuple[str, ...]) -> Reject:
        """Return it as a message about the given members."""
        return Reject(
            code=self.code,
            kind=self.kind,
            reason=self.reason,
            is_retryable=self.is_retryable,
            uids=uids,
        )


def refusal(run: Run, hello: Hello) -> Refusal | None:
    """Return why a host may not take part, ``None`` when it may."""
    for check in _CHECKS:
        found = check(run, hello)
        if found is not None:
            return found
    return None


def is_duplicate(member: Member | None, hello: Hello, offer: Offer) -> bool:
    """Return whether a member of that uid is alive and is not the one that says hello."""
    if member is None or not member.is_alive or member.is_suspect:
        return False
    if has_died_unseen(member, hello, offer):
        return False
    is_same = member.host == hello.host and member.incarnation == offer.incarnation
    return not (is_same and offer.held is not None)


def has_died_unseen(member: Member, hello: Hello, offer: Offer) -> bool:
    """Return whether a host offers the successor of a process that its controller still awaits.

    The host told the end of that process to a controller that is gone.
    """
    is_later = offer.incarnation > member.incarnation
    return member.is_awaited and member.host == hello.host and is_later


def warnings(run: Run, hello: Hello) -> list[str]:
    """Return differences that are let in and worth knowing."""
    ours = run.settings.identity.versions
    if ours is None:
        return []
    pairs = (
        ("torch", ours.torch, hello.versions.torch),
        ("python", ours.python, hello.versions.python),
    )
    return [
        f"{hello.host} has {name} {theirs}, the run {mine}"
        for name, mine, theirs in pairs
        if mine != theirs
    ]


def _is_closed(run: Run, hello: Hello) -> Refusal | None:  # noqa: ARG001
    if run.state not in CLOSED:
        return None
    return Refusal(code=NOT_NOW, kind="run_ending", reason=f"the run is {run.state}")


def _is_malformed(run: Run, hello: Hello) -> Refusal | None:  # noqa: ARG001
    count = len(hello.offers)
    if 0 < count <= MOST_OFFERS:
        return None
    reason = f"{count} ranks offered: a host brings 1 to {MOST_OFFERS}"
    return Refusal(code=MALFORMED, kind="malformed", reason=reason)


def _is_other_run(run: Run, hello: Hello) -> Refusal | None:
    if hello.run_nonce in ("", run.settings.nonce):
        return None
    reason = f"run {hello.run_nonce} offered, this is run {run.settings.nonce}: dial again"
    return Refusal(code=UNFIT, kind="other_run", reason=reason, is_retryable=True)


def _is_full(run: Run, hello: Hello) -> Refusal | None:
    most = run.settings.elastic.max_ranks
    there = {member.uid for member in run.roster if member.is_alive}
    wanted = there | {offer.uid for offer in hello.offers}
    if most is None or len(wanted) <= most:
        return None
    reason = f"{len(wanted)} ranks with these, at most {most}"
    return Refusal(code=NOT_NOW, kind="full", reason=reason, is_retryable=True)


def _is_closed_to_newcomers(run: Run, hello: Hello) -> Refusal | None:
    if run.settings.elastic.rejoin or not run.started:
        return None
    if all(offer.held is not None for offer in hello.offers):
        return None
    return Refusal(code=NOT_NOW, kind="not_elastic", reason="the run takes nobody in any more")


def _unfit(kind: str, name: str, ours: str, theirs: str, fix: str) -> Refusal:
    reason = f"{name} {theirs} offered, the run has {ours}: {fix}"
    return Refusal(code=UNFIT, kind=kind, reason=reason)


def _is_version_skewed(run: Run, hello: Hello) -> Refusal | None:
    if hello.proto != PROTOCOL:
        fix = "install the same flodl on both"
        return _unfit("version_skew", "protocol", str(PROTOCOL), str(hello.proto), fix)
    ours = run.settings.identity.versions
    if ours is None:
        return None
    if _minor(ours.flodl) != _minor(hello.versions.flodl):
        fix = "install the same flodl on both"
        return _unfit("version_skew", "flodl", ours.flodl, hello.versions.flodl, fix)
    if run.settings.elche.mode.is_nccl and _minor(ours.nccl) != _minor(hello.versions.nccl):
        fix = "make one for this host with `fdl nccl build` and set LD_PRELOAD, or use a cpu mode"
        return _unfit("nccl_skew", "NCCL", ours.nccl, hello.versions.nccl, fix)
    return None


def _is_mixed(run: Run, hello: Hello) -> Refusal | None:
    ours = run.settings.identity.vendor
    if ours is None or not run.settings.elche.mode.is_nccl or ours == hello.vendor:
        return None
    return _unfit("vendor_mix", "vendor", ours, hello.vendor, "use a cpu mode")


def _is_other_model(run: Run, hello: Hello) -> Refusal | None:
    return _signature("model", run.settings.identity.model_sig, hello.model_sig)


def _is_other_data(run: Run, hello: Hello) -> Refusal | None:
    return _signature("dataset", run.settings.identity.dataset_sig, hello.dataset_sig)


def _signature(name: str, ours: str | None, theirs: str | None) -> Refusal | None:
    if ours is None or theirs is None or ours == theirs:
        return None
    return _unfit(f"{name}_mismatch", f"{name} signature", ours, theirs, f"use the same {name}")


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


_CHECKS: tuple[Callable[[Run, Hello], Refusal | None], ...] = (
    _is_malformed,
    _is_closed,
    _is_other_run,
    _is_version_skewed,
    _is_mixed,
    _is_other_model,
    _is_other_data,
    _is_closed_to_newcomers,
    _is_full,
)


def is_back(member: Member | None, offer: Offer) -> bool:
    """Return whether a process that was known has come back, rather than a new one."""
    return (
        member is not None
        and member.incarnation == offer.incarnation
        and offer.held is not None
        and member.state is not MemberState.LEFT
    )
