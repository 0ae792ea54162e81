import dataclasses
import json

import pytest

from flodl.core.errors import AccountingError, ConfigError
from flodl.distributed.config import ElCheConfig
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import FromHost, FromMember
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.meta import checkpoint_meta
from flodl.distributed.controller.roster import MemberState
from flodl.distributed.controller.run import RunState
from flodl.distributed.controller.settings import JoinRules, RunSettings
from flodl.distributed.elche import ElChe
from flodl.distributed.protocol.messages import FormAck, Hello, Ready, StateSync
from flodl.distributed.protocol.values import Device, Offer, Trained, Versions

VERSIONS = Versions(flodl="0", torch="0", python="0")
SETTINGS = RunSettings(
    plan=WorkPlan(samples=800, batch_size=8, num_epochs=3),
    elche=ElCheConfig.cpu_cadence(),
    nonce="run",
    join=JoinRules(least=1, target=1),
)


def interrupted():
    """A run in its second epoch, of which 30 batches are committed and one is skipped."""
    controller = Controller(SETTINGS)
    run = controller.run
    run.version = run.last_window = 12
    run.global_step, run.next_epoch = 130, 2
    run.elche = ElChe.for_members(("h/a/0", "h/b/0"), SETTINGS.elche)
    for _ in range(6):
        run.elche.report_window([100.0, 200.0], [10, 10], 0.0)
    for number, (uid, device) in enumerate({"h/a/0": "fast", "h/b/0": "slow"}.items()):
        offer = Offer(uid=uid, incarnation=0, device=Device(uuid=uid, name=device))
        member = run.roster.admit("h", offer, 0.0)
        member.state = MemberState.ACTIVE
        assert member.number == number
    run.ledger.open(1)
    for batches, settle in ((30, run.ledger.commit), (1, run.ledger.skip)):
        lease = run.ledger.grant("h/a/0", 1, batches)
        done = Trained(lease_id=lease.lease_id, batches=batches, samples=8 * batches)
        run.ledger.report("h/a/0", [done], marks=True)
        settle("h/a/0")
    return json.loads(json.dumps(checkpoint_meta(run, "interrupted")))


def join(controller, uid, device):
    offer = Offer(uid=uid, incarnation=0, device=Device(uuid=uid, name=device))
    hello = Hello(host="h", offers=(offer,), versions=VERSIONS, proto=1)
    controller.handle(FromHost(host="h", gen=0, message=hello), 0.0)
    ready = Ready(incarnation=0, build_ms=1.0)
    return controller.handle(FromMember(uid=uid, gen=0, message=ready), 0.1)


def test_a_resumed_run_trains_what_was_not_committed():
    meta = interrupted()
    assert meta["save_reason"] == "interrupted"
    controller = Controller.resumed(SETTINGS, meta)
    run = controller.run
    assert run.ledger.free_batches(1) == 100 - 31
    assert run.ledger.committed_ranges(1) == ((0, 240),)
    assert run.ledger.account(1).skipped_nonfinite == 8
    assert (run.version, run.global_step, run.next_epoch) == (12, 130, 2)
    join(controller, "h/b/0", "slow")
    assert controller.state is RunState.FORMING
    assert run.elche.ms_per_batch == [20.0]
    commands = controller.handle(
        FromMember(uid="h/b/0", gen=1, message=FormAck(gen=1, ok=True, ms=1.0)), 0.2
    )
    (sync,) = [c.message for c in commands if isinstance(c.message, StateSync)]
    assert (sync.source, sync.receivers, sync.version) == ("checkpoint", ("h/b/0",), 12)
    assert sync.global_step == 130


def test_a_new_member_starts_with_the_speed_of_a_like_device():
    controller = Controller.resumed(SETTINGS, interrupted())
    join(controller, "h/z/0", "fast")
    assert controller.run.elche.ms_per_batch == [10.0]


def test_another_mode_learns_speeds_anew():
    settings = dataclasses.replace(SETTINGS, elche=ElCheConfig.cpu_async())
    controller = Controller.resumed(settings, interrupted())
    assert controller.run.elche is None
    assert controller.run.ledger.free_batches(1) == 100 - 31


def test_a_checkpoint_of_one_device_goes_on_with_the_next_epoch():
    run = Controller.resumed(SETTINGS, {"epoch": 2, "global_step": 200}).run
    assert (run.next_epoch, run.ledger.open_epochs, run.is_resumed) == (2, [], True)


def test_a_checkpoint_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="schema 2"):
        Controller.resumed(SETTINGS, interrupted() | {"schema_version": 2})
    shorter = dataclasses.replace(SETTINGS, plan=WorkPlan(samples=80, batch_size=8, num_epochs=3))
    with pytest.raises(ConfigError, match="epoch of 800 samples"):
        Controller.resumed(shorter, interrupted())


def test_parts_that_were_done_twice_are_refused():
    meta = interrupted()
    meta["ledger"][0]["skipped_ranges"] = [[0, 8]]
    with pytest.raises(AccountingError, match="done twice"):
        Controller.resumed(SETTINGS, meta)
