import socket
import threading
import time

import pytest

from flodl.records import NodeReport
from flodl.web.errors import DashboardBindError


def test_a_taken_port_is_named_with_the_reason(serve):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DashboardBindError, match=rf"127\.0\.0\.1:{port}.*in use"):
            serve(port=port)


def test_an_impossible_port_is_an_error_of_the_same_kind(serve):
    with pytest.raises(DashboardBindError, match="99999"):
        serve(port=99999)


def test_stopping_ends_fifty_open_streams_in_time_and_frees_the_port(portal, serve):
    sockets = [portal.raw() for _ in range(50)]
    for raw in sockets:
        raw.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    portal.wait_for(lambda: portal.server._hub.stream_count == 50)
    started = time.monotonic()
    portal.server.stop()
    assert time.monotonic() - started <= 4.0
    for raw in sockets:
        text = b""
        while part := raw.recv(1 << 16):
            text += part
        raw.close()
        assert b"event: hello" in text
        assert text.endswith(b"0\r\n\r\n")
    again = serve(port=portal.server.port)
    assert again.get("/healthz").status_code == 200


def test_stopping_cuts_off_streams_that_do_not_read(portal):
    report = {"k" * 100 + str(n): 1.0 for n in range(200)}
    stuck = [portal.raw() for _ in range(5)]
    for raw in stuck:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(b"GET /stream?path=root HTTP/1.1\r\nHost: localhost\r\n\r\n")
    portal.wait_for(lambda: portal.server._hub.stream_count == 5)
    for tick in range(200):
        report_now = NodeReport(path="root/host-0/rank0", metrics=report, work=1, tick=tick)
        portal.board.tree.publish([report_now])
    started = time.monotonic()
    portal.server.stop()
    assert time.monotonic() - started <= 4.0
    for raw in stuck:
        raw.close()
    names = [thread.name for thread in threading.enumerate()]
    assert "flodl-portal" not in names


def test_streams_beyond_the_limit_are_refused_and_the_rest_go_on(portal):
    sockets = [portal.raw() for _ in range(64)]
    for raw in sockets:
        raw.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    portal.wait_for(lambda: portal.server._hub.stream_count == 64)
    response = portal.get("/stream")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "too_many_streams"
    assert portal.get("/node").status_code == 200
    for raw in sockets:
        raw.close()
    portal.wait_for(lambda: portal.server._hub.stream_count == 0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /paths HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /paths HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n{",
        b"GET /paths HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 200_000 + b"\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /static/..%2f..%2fapp.py HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_garbage_is_answered_with_an_error_or_closed_and_harms_nobody(reading, garbage):
    with reading.raw() as raw:
        answer = b""
        try:
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            while part := raw.recv(1 << 16):
                answer += part
        except OSError:
            pass  # it hung up on us, which is an answer too
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert reading.get("/paths").status_code == 200


def test_stopping_twice_is_stopping_once(portal):
    portal.server.stop()
    portal.server.stop()


def test_a_flood_of_requests_is_answered_at_the_budgets_rate(serve, monkeypatch):
    from flodl.web import gate, hub
    from flodl.web.budget import RequestBudget

    monkeypatch.setattr(
        hub, "RequestBudget", lambda is_over: RequestBudget(is_over, rate=1, burst=20)
    )
    monkeypatch.setattr(gate, "LONGEST_WAIT_S", 0.01)
    portal = serve()
    portal.board.start()
    answers = [portal.get("/snapshot").status_code for _ in range(3)]
    assert answers == [503] * 3
    assert [portal.get("/paths").status_code for _ in range(10)] == [200] * 10
    portal.board.finish("done")
    assert portal.get("/snapshot").status_code == 200


def test_connections_beyond_the_limit_wait_in_the_kernel(serve, monkeypatch):
    from flodl.web import server

    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    portal = serve()
    idle = [portal.raw() for _ in range(3)]
    deadline = time.monotonic() + 10
    while len(portal.server._server.server_state.connections) < 3:
        assert time.monotonic() < deadline
    late = portal.raw()
    late.settimeout(10)
    late.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    idle.pop().close()
    assert late.recv(1 << 16).startswith(b"HTTP/1.1 200")
    for raw in (late, *idle):
        raw.close()


def test_connections_that_ask_for_nothing_are_closed(serve, monkeypatch):
    from flodl.web import server

    monkeypatch.setattr(server, "_SWEEP_S", 0.01)
    monkeypatch.setattr(server, "_SILENCE_S", 0.02)
    portal = serve()
    with portal.raw() as silent, portal.stream("/stream") as stream:
        assert silent.recv(10) == b""
        assert stream.next()["event"] == "hello"


def test_noise_is_refused_without_a_word_on_the_console(portal, caplog):
    for _ in range(5):
        with portal.raw() as raw:
            raw.sendall(b"\x00\xff\r\n\r\n")
            assert raw.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
    assert caplog.records == []


def test_connections_count_against_the_budget_of_a_running_run(portal):
    budget = portal.server._hub.budget
    before = budget._left
    for _ in range(50):
        portal.raw().close()
    portal.wait_for(lambda: budget._left < before - 40)


def test_what_goes_wrong_in_a_route_is_still_told(serve, caplog, monkeypatch):
    portal = serve()
    monkeypatch.setattr(portal.board.tree, "paths", lambda prefix: 1 / 0)
    assert portal.get("/paths").status_code == 500
    deadline = time.monotonic() + 10
    while "ZeroDivisionError" not in caplog.text:
        assert time.monotonic() < deadline, "it was not told"
        time.sleep(0.01)


def test_who_waits_for_the_budget_is_let_go_when_the_server_ends(portal, caplog):
    budget = portal.server._hub.budget
    budget._left = -100.0
    waiting = [portal.raw() for _ in range(3)]
    for raw in waiting:
        raw.sendall(b"GET /paths HTTP/1.1\r\nHost: localhost\r\n\r\n")
    deadline = time.monotonic() + 10
    while len(portal.server._server.server_state.tasks) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    portal.server.stop()
    answers = [raw.recv(1 << 16) for raw in waiting]
    for raw in waiting:
        raw.close()
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
    assert caplog.records == []
