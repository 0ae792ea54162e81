"""Forms a generation: everyone builds its groups, then everyone has one state."""

from __future__ import annotations

from flodl.distributed.controller.commands import Persist
from flodl.distributed.controller.exact import take_up
from flodl.distributed.controller.roster import Member, MemberState
from flodl.distributed.controller.run import Formation, Run, RunState
from flodl.distributed.elche import ElChe
from flodl.distributed.elche.speed import prior_of
from flodl.distributed.protocol.messages import (
    FormAck,
    StatePart,
    StateSource,
    StateSync,
    Synced,
    Topology,
    World,
)
from flodl.distributed.protocol.values import Place

MOST_ATTEMPTS = 5
PARTS: tuple[StatePart, ...] = ("params", "buffers", "outer")


def begin(run: Run) -> None:
    """Name the members of the generation and let them form its groups."""
    members = run.roster.in_state(MemberState.ACTIVE, MemberState.READY)
    if len(members) < run.settings.elastic.min_ranks:
        run.go(RunState.RECONFIGURING, "formation")  # some were lost at the same moment
        return
    for member in members:
        if member.state is MemberState.READY:
            member.state, member.is_new, member.since = MemberState.ACTIVE, True, run.now
        member.stepped_at = run.now
    run.world = tuple(member.uid for member in members)
    run.window = None
    run.formation = Formation(attempts=run.formation.attempts)
    if not take_up(run, members):
        return
    _follow_members(run, members)
    places = _places(run, members)
    world = World(
        gen=run.gen,
        members=places,
        topology=_topology(run, places),
        nonce=f"{run.settings.nonce}/{run.gen}",
        timeouts=_effective(run),
        version=run.version,
    )
    run.history.generations.append(
        {"gen": run.gen, "version": run.version, "members": list(run.world)}
    )
    # Members drop what counts already, and newcomers all they hold: that must not be forgotten.
    run.emit(Persist(reason="formation"))
    for host in sorted({member.host for member in members}):
        run.send_host(host, world)
    run.broadcast(world)
    run.set_deadline("formation", run.settings.timeouts.formation)


def _effective(run: Run) -> dict[str, float]:
    timeouts = run.settings.timeouts
    return {name: getattr(timeouts, name) for name in timeouts.__slots__}


def _places(run: Run, members: list[Member]) -> tuple[Place, ...]:
    seen: set[str] = set()
    places = []
    for rank, member in enumerate(members):
        host = run.roster.hosts.get(member.host)
        places.append(
            Place(
                uid=member.uid,
                rank=rank,
                number=member.number,
                host=member.host,
                data_address="" if host is None else host.data_address,
                is_leader=member.host not in seen,
                is_new=member.is_new,
            )
        )
        seen.add(member.host)
    return tuple(places)


def _topology(run: Run, places: tuple[Place, ...]) -> Topology:
    """Return how an average travels: through host leaders, unless a GPU fabric joins all."""
    wanted = run.settings.elche.hierarchy
    if len(places) == 1:
        return "solo"
    if wanted != "auto":
        return wanted
    elche = run.settings.elche
    return "flat" if elche.mode.is_nccl and elche.collective == "nccl" else "two_level"


def _follow_members(run: Run, members: list[Member]) -> None:
    """Let the cadence know its members; newcomers start with the speed of like devices."""
    if run.elche is None:
        run.elche = ElChe.for_members(run.world, run.settings.elche)
        run.elche.set_epoch_batches(run.settings.plan.epoch_batches)
    elif run.elche.members != run.world:
        speeds = run.speeds()
        priors = {
            member.uid: prior_of(member.device, run.devices, speeds)
            for member in members
            if member.uid not in speeds
        }
        run.elche.change_members(run.world, priors)
    if run.started:
        run.ramp.change(len(run.world))
    elif not run.heirs:
        run.ramp.begin(len(run.world))
    run.devices = {member.uid: member.device for member in members}
    run.take_counts()


def on_form_ack(run: Run, member: Member, message: FormAck) -> None:
    """Count a member whose groups stand; when all do, bring them to one state."""
    if not message.ok:
        _retry(run, f"rank{member.number} could not form its groups: {message.error}")
        return
    run.formation.acked.add(member.uid)
    if len(run.formation.acked) == len(run.world) and not run.formation.is_syncing:
        run.formation.is_syncing = True
        run.set_deadline("formation", run.settings.timeouts.formation)
        run.broadcast(_state_sync(run))


def _state_sync(run: Run) -> StateSync:
    members = [run.roster.members[uid] for uid in run.world]
    source, donor = _donor(run, members)
    receivers = tuple(
        member.uid
        for member in members
        if source != "own"
        and (member.uid != donor or source != "donor")
        and (member.is_new or member.version < run.version or source != "donor")
    )
    wants_optimizer = run.settings.elastic.join_optimizer == "donor"
    return StateSync(
        gen=run.gen,
        source=source,
        donor=donor,
        receivers=receivers,
        version=run.version,
        parts=(*PARTS, "optimizer") if wants_optimizer else PARTS,
        global_step=run.global_step,
        lr_scale=run.ramp.value,
        heirs=run.heirs if source == "exact" else (),
    )


def _donor(run: Run, members: list[Member]) -> tuple[StateSource, str]:
    """Return where state comes from: a member that has it, else what was saved, else rank 0."""
    holders = [member for member in members if not member.is_new and member.version >= run.version]
    if holders:
        donor = max(holders, key=lambda member: (member.window_steps, -member.number))
        return ("own" if len(members) == 1 else "donor"), donor.uid
    if run.started and run.version > 0:
        return "durable", ""
    if run.is_resumed:
        return ("exact" if run.heirs else "checkpoint"), ""
    return ("own" if len(members) == 1 else "donor"), members[0].uid


def on_synced(run: Run, member: Member, message: Synced) -> None:
    """Count a member that has the state; when all have, training begins."""
    if not message.ok:
        _retry(run, f"rank{member.number} could not take over state: {message.error}")
        return
    run.formation.synced.add(member.uid)
    member.version = run.version
    if member.is_new:
        member.is_new = False
        for tally in run.tallies.values():
            tally.joined.append(member.number)
    if len(run.formation.synced) == len(run.world):
        run.formation.attempts = 0
        run.clear_deadlines("formation")
        run.go(RunState.TRAINING)


def on_overdue(run: Run) -> None:
    """Give up the members that did not answer, and try again with the rest."""
    for uid in missing(run):
        run.roster.members[uid].cause = "formation"
    _retry(run, "some members did not form their groups in time")


def missing(run: Run) -> list[str]:
    """Return the members that the formation waits for."""
    formation = run.formation
    there = formation.synced if formation.is_syncing else formation.acked
    return [uid for uid in run.world if uid not in there]


def _retry(run: Run, reason: str) -> None:
    run.formation.attempts += 1
    if run.formation.attempts >= MOST_ATTEMPTS:
        run.go(RunState.FAILED, f"formation: {reason}; {MOST_ATTEMPTS} generations failed")
    else:
        run.alert("formation_failed", reason)
        run.go(RunState.RECONFIGURING, "formation")
