import json
import time

import msgpack
import pytest
from websockets.sync.client import connect

from flodl.distributed.cluster.door import HOST_HEADER, INSTANCE_HEADER
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.controller.commands import (
    Finish,
    Persist,
    PublishEpoch,
    RaiseAlert,
    StateChanged,
    ToHost,
    ToMembers,
    WriteDeath,
)
from flodl.distributed.controller.events import (
    FromHost,
    FromMember,
    LauncherBack,
    LauncherLost,
    StopRequested,
    Tick,
)
from flodl.distributed.protocol import Frame, decode, encode
from flodl.distributed.protocol.messages import (
    Bye,
    Ready,
    StoreReply,
    StoreRequest,
    TelemetryRecord,
    Throttle,
)
from flodl.distributed.serving.journal import read_journal
from flodl.metrics.epoch import EpochMetrics

TOKEN = "a-token-of-the-run"


def dial(controller, path="/ctl", host="node-a"):
    return connect(
        f"ws://{controller.address}{path}",
        additional_headers={
            "Authorization": f"Bearer {TOKEN}",
            HOST_HEADER: host,
            INSTANCE_HEADER: f"process of {host}",
        },
        max_size=None,
        proxy=None,
    )


def frame(message, seq, member="", gen=1):
    return encode(Frame(run="", gen=gen, seq=seq, member=member, message=message))


def received(socket, kind):
    while True:
        got = decode(socket.recv(timeout=10))
        if isinstance(got.message, kind):
            return got


def notes(socket, count):
    return [msgpack.unpackb(socket.recv(timeout=10)) for _ in range(count)]


def test_the_state_is_kept_before_anyone_hears_of_it(controller, core):
    core.answers[FromHost] = lambda e: [
        Persist(reason="x"),
        ToHost(host="node-a", gen=1, message=Throttle(reason="x")),
    ]
    with dial(controller) as socket:
        socket.send(frame(Bye(), 1))
        received(socket, Throttle)
        assert read_journal(controller.journal_file) == core.to_state()


def test_one_word_to_several_members_reaches_each_at_its_host(controller, core):
    core.answers[StopRequested] = lambda e: [
        ToMembers(uids=("a0", "b0", "a1"), gen=2, message=Throttle(reason="x"))
    ]
    ready = Ready(incarnation=0, build_ms=1.0)
    with dial(controller, host="a") as a, dial(controller, host="b") as b:
        a.send(frame(ready, 1, "a0"))
        a.send(frame(ready, 2, "a1"))
        b.send(frame(ready, 1, "b0"))
        for _ in range(3):
            core.wait_for(FromMember)
        controller.server.put(StopRequested())
        assert [received(a, Throttle).member for _ in range(2)] == ["a0", "a1"]
        assert received(b, Throttle).member == "b0"


def test_store_operations_are_answered_without_the_core(controller, core):
    wait = StoreRequest(request_id=1, op="wait", keys=("k",), timeout=10.0)
    put = StoreRequest(request_id=7, op="set", keys=("k",), value=b"v")
    with dial(controller, host="a") as a, dial(controller, host="b") as b:
        a.send(frame(wait, 1, "a0", gen=3))
        b.send(frame(put, 1, "b0", gen=3))
        got = received(a, StoreReply)
        assert (got.member, got.gen, got.message.request_id) == ("a0", 3, 1)
        assert received(b, StoreReply).message.request_id == 7
    assert not any(isinstance(e, FromMember) for e in core.seen)


def test_time_passes_for_a_core_that_waits(tmp_path, controller, core):
    core.wait_for(Tick)  # the one that a run begins with
    due = [time.monotonic() + 0.05]
    core.next_deadline = lambda: due[0] if due else None
    core.answers[Tick] = lambda e: due.clear() or []
    controller.server.put(StopRequested())
    core.wait_for(StopRequested)
    core.wait_for(Tick)
    assert not due


def test_a_death_is_written_beside_the_checkpoint(tmp_path, controller, core):
    core.answers[StopRequested] = lambda e: [WriteDeath(number=3, details={"cause": "signal"})]
    controller.server.put(StopRequested())
    file = tmp_path / "run.rank3.death.json"
    deadline = time.monotonic() + 10
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert json.loads(file.read_text()) == {"cause": "signal"}


def test_what_cannot_be_written_is_an_alert_and_no_end(tmp_path, controller, core):
    (tmp_path / "run.rank3.death.json").mkdir()
    (tmp_path / "journal.tmp").mkdir()
    core.answers[StopRequested] = lambda e: [
        WriteDeath(number=3, details={}),
        Persist(reason="x"),
        Persist(reason="again"),
    ]
    with dial(controller, "/launcher") as launcher:
        core.wait_for(LauncherBack)
        controller.server.put(StopRequested())
        told = notes(launcher, 2)
        assert [note["code"] for note in told] == ["death_file_failed", "journal_failed"]
        assert "cannot be written" in told[1]["message"]
        controller.server.put(LauncherBack())
        core.wait_for(LauncherBack)


def test_the_launcher_hears_of_states_epochs_alerts_and_the_end(controller, core):
    metrics = EpochMetrics(
        epoch=2, avg_loss=0.5, epoch_ms=1.0, lr=0.1, batches_processed=4, samples_processed=40
    )
    core.answers[LauncherBack] = lambda e: [
        StateChanged(state="training"),
        PublishEpoch(metrics=metrics),
        RaiseAlert(code="c", message="m", fields={"rank": 1}),
        Finish(reason="done", report={"deaths": []}),
    ]
    with dial(controller, "/launcher") as launcher:
        state, epoch, alert, finish = notes(launcher, 4)
        launcher.send(msgpack.packb({"op": "bye"}))
    assert (state["op"], state["state"]) == ("state", "training")
    assert (epoch["op"], epoch["epoch"], epoch["metrics"]["avg_loss"]) == ("epoch", 2, 0.5)
    assert (alert["op"], alert["fields"]) == ("alert", {"rank": 1})
    assert (finish["op"], finish["reason"], finish["is_failed"]) == ("finish", "done", False)
    controller.join()
    assert controller.finish == Finish(reason="done", report={"deaths": []})


def test_an_audience_that_raises_ends_nothing(controller, core, caplog):
    class Broken:
        def take(self, command):
            raise RuntimeError("no disk")

        def direct(self, note):
            raise AssertionError

    controller.server._audience = Broken()
    core.answers[StopRequested] = lambda e: [StateChanged(state="training")]
    controller.server.put(StopRequested())
    core.wait_for(StopRequested)
    controller.server.put(LauncherBack())
    core.wait_for(LauncherBack)
    assert "records of the run could not take StateChanged" in caplog.text
    assert controller.server.state()["state"] == "training"


def test_what_ranks_tell_people_goes_to_the_audience_and_to_the_core(controller, core, caplog):
    heard = []

    class Audience:
        def hear(self, uid, message):
            heard.append((uid, message))
            if len(heard) == 2:
                raise RuntimeError("no disk")

        def take(self, command):
            raise AssertionError

    controller.server._audience = Audience()
    told = TelemetryRecord(path="", values={"rank": 1})
    for message in (told, told, Bye()):
        controller.server.put(FromMember(uid="u", gen=1, message=message))
    controller.server.put(LauncherBack())
    core.wait_for(LauncherBack)
    assert heard == [("u", told)] * 2
    assert caplog.text.count("could not take what u tells") == 1
    assert [e.message for e in core.seen if isinstance(e, FromMember)] == [told, told, Bye()]


@pytest.mark.parametrize("comes", [True, False])
def test_a_launcher_that_never_comes_is_lost(tmp_path, core, comes, running_controller):
    timeouts = Timeouts(boot=0.3, drain=0.5)
    controller = running_controller(launcher_is_expected=True, timeouts=timeouts)
    if comes:
        with dial(controller, "/launcher"):
            core.wait_for(LauncherBack)
            time.sleep(0.5)
            assert not any(isinstance(e, LauncherLost) for e in core.seen)
            controller.server._launcher_left.set()
    else:
        core.wait_for(LauncherLost)
        controller.server._launcher_left.set()
