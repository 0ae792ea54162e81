import dataclasses
import json

import pytest

from flodl.distributed.config import ElCheConfig
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import FromHost, FromMember
from flodl.distributed.controller.exact import exact_state, renamed
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.meta import checkpoint_meta
from flodl.distributed.controller.roster import MemberState
from flodl.distributed.controller.run import RunState
from flodl.distributed.controller.settings import JoinRules, RunSettings
from flodl.distributed.controller.tallies import EpochTally
from flodl.distributed.elche import ElChe
from flodl.distributed.protocol.codec import PROTOCOL
from flodl.distributed.protocol.messages import FormAck, Hello, Ready, StateSync, Synced, SyncNow
from flodl.distributed.protocol.values import Device, Offer, Trained, Versions

VERSIONS = Versions(flodl="0", torch="0", python="0")
SETTINGS = RunSettings(
    plan=WorkPlan(samples=800, batch_size=8, num_epochs=3),
    elche=ElCheConfig.cpu_cadence(),
    nonce="run",
    join=JoinRules(least=2, target=2),
)


def admit(run, uids, device="cpu"):
    for uid in uids:
        offer = Offer(uid=uid, incarnation=0, device=Device(uuid=uid, name=device))
        run.roster.admit("h", offer, 0.0).state = MemberState.ACTIVE


def cut(uids=("h/a", "h/b")):
    """The list of a checkpoint in the second epoch; the first member holds a lease half done."""
    run = Controller(SETTINGS).run
    run.version, run.last_window, run.global_step, run.next_epoch = 12, 12, 130, 2
    run.elche = ElChe.for_members(uids, SETTINGS.elche)
    for ms in (100.0, 110.0, 90.0, 100.0, 100.0, 100.0):
        run.elche.report_window([ms, 2 * ms], [10, 10], 0.0)
    admit(run, uids)
    run.ledger.open(1)
    run.tallies[1] = EpochTally(epoch=1, started_at=4.0, windows=3)
    lease = run.ledger.grant(uids[0], 1, 10)
    done = Trained(lease_id=lease.lease_id, batches=4, samples=32)
    run.ledger.report(uids[0], [done], marks=True)
    run.ledger.commit(uids[0])
    run.drift.take(0.5, 3)
    run.drift.take(0.6, 3)
    meta = checkpoint_meta(run, "checkpoint")
    meta["exact"] = exact_state(run)
    return json.loads(json.dumps(meta)), run


def joined(meta, uids, device="cpu", **settings):
    least = len(uids)
    rules = JoinRules(least=least, target=least)
    controller = Controller.resumed(dataclasses.replace(SETTINGS, join=rules, **settings), meta)
    offers = tuple(
        Offer(uid=uid, incarnation=0, device=Device(uuid=uid, name=device)) for uid in uids
    )
    hello = Hello(host="h", offers=offers, versions=VERSIONS, proto=PROTOCOL)
    commands = controller.handle(FromHost(host="h", gen=0, message=hello), 10.0)
    for uid in uids:
        message = FromMember(uid=uid, gen=0, message=Ready(incarnation=0, build_ms=1.0))
        commands += controller.handle(message, 10.0)
    return controller, commands


def acked(controller, uids, message):
    commands = []
    for uid in uids:
        commands += controller.handle(FromMember(uid=uid, gen=1, message=message), 10.5)
    return commands


def test_members_go_on_with_the_leases_and_readings_of_those_before_them():
    meta, before = cut()
    now = ("x/0", "x/1")
    controller, _ = joined(meta, now)
    run = controller.run
    assert run.heirs == now
    (held,) = run.ledger.held("x/0")
    assert (held.samples, held.committed, held.trained) == (80, 32, 32)
    assert run.ledger.committed_ranges(1) == ((0, 32),)
    assert run.elche.members == now
    assert run.elche.ms_per_batch == before.elche.ms_per_batch
    assert run.drift == before.drift
    assert (run.tallies[1].windows, run.tallies[1].started_at) == (3, 10.0)
    commands = acked(controller, now, FormAck(gen=1, ok=True, ms=1.0))
    syncs = {c.message for c in commands if isinstance(getattr(c, "message", None), StateSync)}
    (sync,) = syncs
    assert (sync.source, sync.heirs, sync.version, sync.global_step) == ("exact", now, 12, 130)
    commands = acked(controller, now, Synced(gen=1, version=12))
    assert controller.state is RunState.TRAINING
    begins = [c.message for c in commands if isinstance(getattr(c, "message", None), SyncNow)]
    assert {message.window for message in begins} == {13}
    run.ledger.check()


@pytest.mark.parametrize(
    ("uids", "device", "text"),
    [
        (("h/a",), "cpu", "is of 2 ranks, and there are 1"),
        (("h/a", "h/b"), "gpu", "is of ranks on cpu, cpu; these are gpu, gpu"),
    ],
)
def test_other_members_go_on_as_from_a_full_checkpoint_and_are_told(uids, device, text):
    meta, _ = cut()
    controller, commands = joined(meta, uids, device)
    alerts = [c.message for c in commands if getattr(c, "code", "") == "exact_resume"]
    assert len(alerts) == 1
    assert text in alerts[0]
    run = controller.run
    assert (run.heirs, run.ledger.held("h/a")) == ((), [])
    assert run.ledger.free_batches(1) == 96
    commands = acked(controller, uids, FormAck(gen=1, ok=True, ms=1.0))
    sync = next(c.message for c in commands if isinstance(getattr(c, "message", None), StateSync))
    assert (sync.source, sync.heirs) == ("checkpoint", ())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"elche": ElCheConfig.cpu_async()}, "mode='cpu_cadence', and this run of 'cpu_async'"),
        ({"elche": ElCheConfig.cpu_cadence(bf16_wire=True)}, "bf16_wire=False"),
        ({"plan": WorkPlan(samples=800, batch_size=4, num_epochs=3)}, "batch_size=8"),
    ],
)
def test_other_settings_go_on_as_from_a_full_checkpoint_and_are_told(settings, text):
    meta, _ = cut()
    controller, commands = joined(meta, ("h/a", "h/b"), **settings)
    (alert,) = [c.message for c in commands if getattr(c, "code", "") == "exact_resume"]
    assert text in alert
    assert controller.run.heirs == ()
    assert controller.run.ledger.committed_ranges(1) == ((0, 32),)


def test_other_members_are_an_error_where_it_must_be_exact():
    meta, _ = cut()
    controller, _ = joined(meta, ("h/a",), exact_strict=True)
    assert controller.state is RunState.FAILED
    assert controller.run.reason == ("exact_resume: the checkpoint is of 2 ranks, and there are 1")


def test_a_member_lost_while_the_generation_forms_leaves_the_rest_a_full_checkpoint():
    meta, _ = cut()
    controller, _ = joined(meta, ("h/a", "h/b"))
    run = controller.run
    assert run.ledger.held("h/a")
    run.roster.members["h/b"].state = MemberState.LOST
    run.go(RunState.FORMING)
    controller._enter()
    assert (run.heirs, run.ledger.held("h/a"), run.ledger.free_batches(1)) == ((), [], 96)


def test_members_are_renamed_as_keys_and_as_values_and_may_swap_names():
    names = {"a": "b", "b": "a"}
    assert renamed({"a": ["b", 1, {"x": "a"}], "c": None}, names) == {
        "b": ["a", 1, {"x": "b"}],
        "c": None,
    }
