import asyncio
import os
import socket
import threading
import time

import pytest

from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.collective.errors import CollectiveError, StoreClosed, StoreTimeout
from flodl.distributed.lifecycle.rank_events import (
    FromController,
    HostLeaseExpired,
    LinkLost,
    LinkRestored,
)
from flodl.distributed.protocol import Frame, decode, encode
from flodl.distributed.protocol.messages import (
    Abort,
    Accept,
    Bye,
    Nack,
    Reconfigure,
    StoreReply,
    StoreRequest,
    Throttle,
)
from flodl.distributed.worker.link import RankLink
from flodl.distributed.worker.pipe import DaemonPipe, PacketKind, RankPipe, packet
from flodl.distributed.worker.progress import ProgressPage, new_page


class Daemon:
    """The other end of a rank's pipe, by hand."""

    def __init__(self, **options):
        ours, theirs = socket.socketpair()
        fd = new_page()
        self.page = ProgressPage(os.dup(fd))
        self.orphaned = threading.Event()
        place = RunPlace(
            run="r", nonce="n", run_dir="/", uid="u", link_fd=theirs.detach(), page_fd=fd
        )
        self.link = RankLink(place, on_orphaned=self.orphaned.set, **options)
        self._pipe = RankPipe(ours.detach())

    def send(self, message, gen=1):
        frame = Frame(run="", gen=gen, seq=0, member="u", message=message)
        assert self._pipe.send(encode(frame))

    def note(self, kind):
        self._pipe._socket.sendall(packet(kind))

    def send_raw(self, data):
        assert self._pipe.send(data)

    def receive(self):
        got = self._pipe.receive()
        return None if got is None else decode(got[1])

    def hang_up(self):
        self._pipe.shut()

    def close(self):
        self.link.close()
        self._pipe.close()
        self.page.close()


@pytest.fixture
def daemon():
    made = Daemon()
    yield made
    made.close()


def taken(link, count):
    """Return the next ``count`` pieces of mail."""
    mail, deadline = [], time.monotonic() + 10
    while len(mail) < count and time.monotonic() < deadline:
        link.wait(0.1)
        mail += link.take()
    return mail


def test_mail_comes_in_order_and_none_is_no_mail(daemon):
    assert daemon.link.take() == []
    assert not daemon.link.wait(0.0)
    daemon.send(Accept(members=(), gen=1, run_nonce="n"))
    daemon.send(Throttle(reason="x"))
    daemon.note(PacketKind.LINK_DOWN)
    daemon.note(PacketKind.LINK_UP)
    daemon.note(PacketKind.HOLD)
    first, second, *rest = taken(daemon.link, 5)
    assert isinstance(first.message, Accept)
    assert second == FromController(gen=1, message=Throttle(reason="x"))
    assert rest == [LinkLost(), LinkRestored(), HostLeaseExpired()]


def test_what_a_rank_sends_bears_its_name_and_generation(daemon):
    daemon.link.send(Bye(reason="done"), 4)
    got = daemon.receive()
    assert (got.member, got.gen, got.run, got.message) == ("u", 4, "n", Bye(reason="done"))


def test_messages_of_a_generation_that_is_over_are_dropped(daemon):
    daemon.send(Reconfigure(gen=3, reason="x"), gen=3)
    daemon.send(Throttle(reason="late"), gen=2)
    daemon.send(Throttle(reason="now"), gen=3)
    assert [m.message.reason for m in taken(daemon.link, 2)] == ["x", "now"]
    assert daemon.link.dropped == 1


@pytest.mark.parametrize("urgent", [Reconfigure(gen=2, reason="x"), Abort(reason="x")])
def test_something_urgent_interrupts_until_it_is_taken(daemon, urgent):
    daemon.send(Throttle(reason="x"))
    daemon.link.wait(10)
    assert not daemon.link.is_interrupted()
    daemon.send(urgent, gen=2)
    taken_at_last = []
    while urgent not in taken_at_last:
        if daemon.link.is_interrupted():
            taken_at_last += [mail.message for mail in daemon.link.take()]
    assert not daemon.link.is_interrupted()


def test_an_unknown_message_is_answered(daemon):
    import msgpack

    body = {"t": "of_tomorrow", "v": 1, "run": "", "gen": 1, "seq": 9, "m": "u", "b": {}}
    daemon.send_raw(msgpack.packb(body))
    assert daemon.receive().message == Nack(kind="of_tomorrow", seq=9, reason="unknown type")


def test_the_page_shows_life_and_progress(daemon):
    before = time.monotonic_ns()
    daemon.link.progress("run", step=12, window_steps=2, batch_ms=3.5)
    assert daemon.page.read().step == 12
    deadline = time.monotonic() + 10
    while daemon.page.read().beat_ns <= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert daemon.page.read().beat_ns > before


def test_closing_sends_what_was_given_before(daemon):
    for number in range(50):
        daemon.link.send(Bye(reason=str(number)))
    closing = threading.Thread(target=daemon.link.close)
    closing.start()
    assert [daemon.receive().message.reason for _ in range(50)] == [str(n) for n in range(50)]
    closing.join()
    assert not daemon.orphaned.is_set()


def test_a_rank_whose_daemon_is_gone_does_not_go_on(daemon):
    daemon.hang_up()
    assert daemon.orphaned.wait(10)
    with pytest.raises(StoreClosed, match="daemon is gone"):
        daemon.link.store.set("k", b"")


# ---------------------------------------------------------------- the store


def asked(daemon, operation):
    """Start an operation of the store in a thread; return its request, and how it ends."""
    ending = {}

    def run():
        try:
            ending["value"] = operation(daemon.link.store)
        except Exception as error:
            ending["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    request = daemon.receive().message
    assert isinstance(request, StoreRequest)

    def end():
        thread.join(10)
        assert not thread.is_alive()
        return ending

    return request, end


@pytest.mark.parametrize(
    ("operation", "reply", "value"),
    [
        (lambda s: s.set("k", b"v"), {}, None),
        (lambda s: s.get("k"), {"value": b"v"}, b"v"),
        (lambda s: s.add("k", 2), {"number": 5}, 5),
        (lambda s: s.check(["k"]), {"number": 1}, True),
        (lambda s: s.check(["k"]), {"number": 0}, False),
        (lambda s: s.wait(["k"], 1.0), {}, None),
        (lambda s: s.compare_set("k", b"", b"w"), {"value": b"w"}, b"w"),
        (lambda s: s.delete("k"), {"number": 1}, True),
    ],
)
def test_an_operation_gives_what_the_controller_answers(daemon, operation, reply, value):
    request, end = asked(daemon, operation)
    daemon.send(StoreReply(request_id=request.request_id, **reply))
    assert end() == {"value": value}


def test_a_key_that_does_not_come_is_a_timeout_and_another_failure_is_told(daemon):
    request, end = asked(daemon, lambda s: s.wait(["k"], 0.5))
    assert request.timeout == 0.5
    daemon.send(StoreReply(request_id=request.request_id, ok=False, error="timeout"))
    assert isinstance(end()["error"], StoreTimeout)
    request, end = asked(daemon, lambda s: s.add("k", 1))
    daemon.send(StoreReply(request_id=request.request_id, ok=False, error="not a number"))
    assert isinstance(end()["error"], CollectiveError)


def test_a_wait_ends_when_something_urgent_arrives_and_the_store_works_once_it_is_taken(daemon):
    _, end = asked(daemon, lambda s: s.wait(["k"], 30.0))
    daemon.send(Reconfigure(gen=2, reason="x"), gen=2)
    assert isinstance(end()["error"], StoreClosed)
    with pytest.raises(StoreClosed):
        daemon.link.store.set("k", b"")
    taken(daemon.link, 1)
    request, end = asked(daemon, lambda s: s.delete("k"))
    daemon.send(StoreReply(request_id=request.request_id), gen=2)
    assert end() == {"value": False}


def test_a_controller_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr("flodl.distributed.worker.store._MARGIN_S", 0.05)
    daemon = Daemon(store_timeout_s=0.05)
    _, end = asked(daemon, lambda s: s.set("k", b""))
    assert isinstance(end()["error"], StoreTimeout)
    daemon.close()


# ---------------------------------------------------------------- the daemon's end of the pipe


def test_a_packet_that_is_no_frame_is_an_error_at_the_daemon():
    from flodl.distributed.protocol import FrameError

    async def receive(data):
        pipe, theirs = await DaemonPipe.pair()
        try:
            theirs.sendall(data)
            theirs.close()
            return await pipe.receive()
        finally:
            pipe.close()

    assert asyncio.run(receive(packet(PacketKind.FRAME, b"abc"))) == b"abc"
    assert asyncio.run(receive(b"")) is None
    for bad in (packet(PacketKind.HOLD), b"\xff\xff\xff\xff\x01"):
        with pytest.raises(FrameError, match="ranks send frames only"):
            asyncio.run(receive(bad))
