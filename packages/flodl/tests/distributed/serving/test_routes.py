import http.client
import json
import logging

import msgpack
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from flodl.distributed.cluster.door import HOST_HEADER, INSTANCE_HEADER, SEEN_HEADER
from flodl.distributed.controller.commands import PublishEval, RaiseAlert, StateChanged, ToMember
from flodl.distributed.controller.events import (
    FromHost,
    FromMember,
    HostLinkLost,
    LauncherBack,
    LauncherLost,
    StartRequested,
    StopRequested,
)
from flodl.distributed.protocol import Frame, decode, encode
from flodl.distributed.protocol.messages import Beat, Bye, Nack, Ready, Throttle

TOKEN = "a-token-of-the-run"


def dial(controller, path="/ctl", token=TOKEN, **headers):
    named = {HOST_HEADER: "node-a", INSTANCE_HEADER: "one", **headers}
    return connect(
        f"ws://{controller.address}{path}",
        additional_headers={"Authorization": f"Bearer {token}", **named},
        max_size=None,
        proxy=None,
        compression=None,
    )


def frame(message, seq, member="", gen=1):
    return encode(Frame(run="", gen=gen, seq=seq, member=member, message=message))


def beat(acked=0, at=5.0):
    return frame(Beat(monotonic_ms=at, acked_seq=acked), 0)


def ask(controller, method, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", controller.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def received(socket, kind):
    """Return the next message of a kind."""
    while True:
        got = decode(socket.recv(timeout=10))
        if isinstance(got.message, kind):
            return got


def test_a_daemons_frames_reach_the_core_with_host_and_member(controller, core):
    with dial(controller) as socket:
        socket.send(frame(Bye(reason="x"), 1))
        socket.send(frame(Ready(incarnation=0, build_ms=1.0), 2, member="u", gen=3))
        assert core.wait_for(FromHost) == FromHost(host="node-a", gen=1, message=Bye(reason="x"))
        event = core.wait_for(FromMember)
        assert (event.uid, event.gen) == ("u", 3)
    assert core.wait_for(HostLinkLost) == HostLinkLost(host="node-a")


def test_what_the_core_says_to_a_member_goes_to_its_host(controller, core):
    core.answers[FromMember] = lambda e: [
        ToMember(uid=e.uid, gen=7, message=Throttle(reason="slow"))
    ]
    with dial(controller) as socket:
        socket.send(frame(Ready(incarnation=0, build_ms=1.0), 1, member="u"))
        got = received(socket, Throttle)
    assert (got.member, got.gen, got.run, got.seq) == ("u", 7, "nonce-1", 1)


def test_a_beat_comes_back_with_the_time_it_was_sent_at(controller):
    with dial(controller) as socket:
        socket.send(frame(Bye(), 1))
        socket.send(beat(at=1234.5))
        got = received(socket, Beat)
    assert got.message == Beat(monotonic_ms=1234.5, acked_seq=1)


def test_after_a_break_each_side_gets_what_it_missed_and_nothing_twice(controller, core):
    core.answers[FromMember] = lambda e: [
        ToMember(uid="u", gen=e.gen, message=Throttle(reason=str(e.gen)))
    ]
    ready = Ready(incarnation=0, build_ms=1.0)
    with dial(controller) as socket:
        socket.send(frame(ready, 1, member="u", gen=1))
        socket.send(frame(ready, 2, member="u", gen=2))
        assert received(socket, Throttle).message.reason == "1"
        core.wait_for(FromMember)
        core.wait_for(FromMember)
        socket.send(beat(acked=1))
        received(socket, Beat)
    with dial(controller) as socket:
        socket.send(frame(ready, 2, member="u", gen=2))
        socket.send(frame(ready, 3, member="u", gen=3))
        assert [received(socket, Throttle).message.reason for _ in range(2)] == ["2", "3"]
    gens = [e.gen for e in core.seen if isinstance(e, FromMember)]
    assert gens == [1, 2, 3]


def test_a_daemon_that_was_started_again_begins_anew(controller, core):
    with dial(controller) as socket:
        socket.send(frame(Bye(reason="old"), 1))
        core.wait_for(FromHost)
    with dial(controller, **{INSTANCE_HEADER: "two"}) as socket:
        socket.send(frame(Bye(reason="new"), 1))
        assert core.wait_for(FromHost).message.reason == "new"


def test_each_connection_says_which_process_answers(controller):
    with dial(controller) as one, dial(controller, **{HOST_HEADER: "node-b"}) as other:
        told = [socket.response.headers[INSTANCE_HEADER] for socket in (one, other)]
    assert told[0] == told[1] != ""


@pytest.mark.parametrize("path", ["/ctl", "/launcher"])
def test_without_the_token_no_websocket_opens(controller, path):
    for token in ("", "wrong"):
        with pytest.raises(InvalidStatus) as refused:
            dial(controller, path, token=token)
        assert refused.value.response.status_code == 401
        assert not refused.value.response.body


def test_who_guesses_ten_times_is_told_to_wait(controller):
    for _ in range(10):
        assert ask(controller, "POST", "/stop", Authorization="Bearer no")[0] == 401
    with pytest.raises(InvalidStatus) as refused:
        dial(controller)
    assert refused.value.response.status_code == 429


@pytest.mark.parametrize(
    ("data", "code"), [(b"\xc1", 4400), (b"\x80", 4400), ("text", 4400), (bytes(2 << 20), 1009)]
)
def test_a_malformed_frame_closes_its_connection_and_no_other(controller, core, data, code):
    with dial(controller, **{HOST_HEADER: "good"}) as good:
        with dial(controller) as bad:
            bad.send(data)
            with pytest.raises(ConnectionClosed) as closed:
                bad.recv(timeout=10)
            assert closed.value.rcvd.code == code
        good.send(frame(Bye(), 1))
        assert core.wait_for(FromHost).host == "good"


def test_an_unknown_message_is_answered_and_counted_as_received(controller):
    body = {"t": "of_tomorrow", "v": 1, "run": "", "gen": 0, "seq": 1, "m": "u", "b": {}}
    with dial(controller) as socket:
        socket.send(msgpack.packb(body))
        got = received(socket, Nack)
    assert (got.message.kind, got.message.seq, got.member) == ("of_tomorrow", 1, "u")


def test_stop_needs_the_token_and_reaches_the_core(controller, core):
    assert ask(controller, "POST", "/stop")[0] == 401
    assert ask(controller, "POST", "/stop", **{"X-Flodl": "1"})[0] == 401
    assert not any(isinstance(event, StopRequested) for event in core.seen)
    assert ask(controller, "POST", "/stop", Authorization=f"Bearer {TOKEN}")[0] == 200
    core.wait_for(StopRequested)


def test_start_from_this_machine_needs_a_header_that_no_page_can_send(controller, core):
    assert ask(controller, "POST", "/start")[0] == 401
    status, body = ask(controller, "POST", "/start", **{"X-Flodl": "1"})
    assert status == 409
    assert "waiting" in json.loads(body)["reason"]
    core.answers[StopRequested] = lambda e: [StateChanged(state="staging")]
    ask(controller, "POST", "/stop", Authorization=f"Bearer {TOKEN}")
    core.wait_for(StopRequested)
    while json.loads(ask(controller, "GET", "/state.json")[1])["state"] != "staging":
        pass
    assert ask(controller, "POST", "/start", **{"X-Flodl": "1"})[0] == 200
    core.wait_for(StartRequested)


def test_the_state_names_run_hosts_and_deadlines_but_no_token(controller):
    with dial(controller):
        status, body = ask(controller, "GET", "/state.json")
    state = json.loads(body)
    assert status == 200
    assert (state["run"], state["state"], state["hosts"]) == ("run-1", "waiting", ["node-a"])
    assert state["timeouts"]["heartbeat"] == 0.05
    assert TOKEN.encode() not in body


def test_health_needs_no_token(controller):
    assert ask(controller, "GET", "/healthz")[0] == 200


def test_a_launcher_that_comes_back_gets_what_it_missed(controller, core):
    core.answers[LauncherBack] = lambda e: [
        PublishEval(epoch=len(core.seen), values={"a": 1.0}),
        RaiseAlert(code="c", message="m"),
    ]
    with dial(controller, "/launcher") as socket:
        first = [msgpack.unpackb(socket.recv(timeout=10)) for _ in range(2)]
        instance = socket.response.headers[INSTANCE_HEADER]
    assert [note["op"] for note in first] == ["eval", "alert"]
    assert [note["n"] for note in first] == [1, 2]
    core.wait_for(LauncherLost)
    with dial(controller, "/launcher", **{INSTANCE_HEADER: instance, SEEN_HEADER: "1"}) as socket:
        again = [msgpack.unpackb(socket.recv(timeout=10)) for _ in range(3)]
    assert [note["n"] for note in again] == [2, 3, 4]


def test_a_launcher_of_another_controller_gets_everything(controller, core):
    core.answers[LauncherBack] = lambda e: [PublishEval(epoch=0, values={})]
    with dial(controller, "/launcher", **{INSTANCE_HEADER: "other", SEEN_HEADER: "9"}) as socket:
        assert msgpack.unpackb(socket.recv(timeout=10))["n"] == 1


def test_the_launchers_words_reach_the_core(controller, core):
    with dial(controller, "/launcher") as socket:
        socket.send(msgpack.packb({"op": "stop", "save": False, "reason": "interrupted"}))
        assert core.wait_for(StopRequested) == StopRequested(save=False, reason="interrupted")


def test_the_token_is_not_logged_even_where_everything_is(controller, caplog):
    with caplog.at_level(logging.DEBUG), dial(controller) as socket:
        socket.send(frame(Bye(), 1))
        socket.send(beat())
        received(socket, Beat)
        ask(controller, "POST", "/stop", Authorization=f"Bearer {TOKEN}")
    server = [r.getMessage() for r in caplog.records if r.name.startswith(("uvicorn", "flodl"))]
    assert not any(TOKEN in line for line in server)
