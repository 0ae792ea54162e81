import json
import math
import threading
from dataclasses import replace

import pytest

from flodl.records import NodeReport


def records(events):
    return [event["data"] for event in events if event["event"] == "record"]


def publish(portal, tick, path="root/host-0/rank0"):
    report = NodeReport(path=path, metrics={"loss": 1.0}, work=1, tick=tick)
    portal.board.tree.publish([report])


def is_tick(tick):
    return lambda event: event["event"] == "record" and event["data"].get("tick") == tick


def test_a_stream_begins_with_hello_meta_and_the_past(portal):
    with portal.stream("/stream?path=root/host-0") as stream:
        hello = stream.next()
        assert hello["event"] == "hello"
        assert set(hello["data"]) == {"run", "seq", "status"}
        meta = stream.next()
        assert meta["data"]["kind"] == "meta"
        publish(portal, 777)
        past = records(stream.until(is_tick(777)))
    assert {record["path"] for record in past if record["kind"] == "node"} == {
        "root/host-0",
        "root/host-0/rank0",
        "root/host-0/rank1",
    }


def test_ids_are_the_sequence_numbers_and_never_ahead_of_what_was_sent(portal):
    with portal.stream("/stream?path=root") as stream:
        publish(portal, 777)
        events = stream.until(is_tick(777))
    ids = [int(event["id"]) for event in events]
    assert ids == sorted(ids)
    for event in events[2:]:
        assert int(event["id"]) == event["data"]["seq"]
    assert ids[0] < ids[2]


def test_records_are_those_of_the_level_and_alerts_those_of_the_run_when_asked(portal):
    with portal.stream("/stream?path=root/host-0&alerts=root") as stream:
        stream.until(lambda event: event["event"] == "record")
        portal.board.tree.alert("rank_lost", "root/host-1/rank3", "gone")
        publish(portal, 555, "root/host-1/rank2")
        publish(portal, 777)
        seen = records(stream.until(is_tick(777)))
    assert [r["path"] for r in seen if r["kind"] == "event"] == ["root/host-1/rank3"]
    assert not [r for r in seen if r.get("tick") == 555]


def test_a_limited_stream_holds_that_many_children(portal):
    with portal.stream("/stream?path=root/host-0&limit=1&offset=1") as stream:
        publish(portal, 776, "root/host-0/rank1")
        publish(portal, 777)
        seen = records(stream.until(is_tick(777)))
    paths = {r["path"] for r in seen if r["kind"] == "node"}
    assert paths == {"root/host-0", "root/host-0/rank1"}


@pytest.mark.parametrize("how", ["header", "query"])
def test_a_stream_resumes_after_an_id(portal, how):
    everything = portal.get("/history?path=root&n=8192").json()
    cut = everything[7]["seq"]
    headers = {"last-event-id": str(cut)} if how == "header" else {}
    query = f"&since={cut}" if how == "query" else ""
    with portal.stream(f"/stream?path=root{query}", **headers) as stream:
        publish(portal, 777)
        events = stream.until(is_tick(777))
    assert int(events[0]["id"]) == cut
    seen = [r for r in records(events) if r["kind"] == "node" and r.get("tick") != 777]
    assert [r["seq"] for r in seen] == [r["seq"] for r in everything if r["seq"] > cut]


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "9" * 5000])
def test_a_wrong_id_to_resume_after_is_refused(portal, given):
    answer = portal.get("/stream?path=root", headers={"last-event-id": given})
    assert answer.status_code == 400
    assert answer.json()["error"] == {
        "code": "bad_query",
        "message": "Last-Event-ID: must be a whole number, not negative",
    }


def test_a_stream_that_cannot_resume_tells_its_client_to_start_afresh(portal, monkeypatch):
    monkeypatch.setattr("flodl.records.ring._MOST", 40)
    for tick in range(300):
        publish(portal, 1000 + tick)
    with portal.stream("/stream?path=root&since=20") as stream:
        assert [event["event"] for event in stream.rest()] == ["resync"]


def test_nothing_is_lost_or_doubled_between_past_and_present_under_concurrent_writers(portal):
    tree, total, writers = portal.board.tree, 1000, 3
    seqs = {}

    def write(number):
        for tick in range(total):
            publish(portal, 10_000 + tick, f"root/host-0/rank{number}")

    def watch(name):
        with portal.stream("/stream?path=root/host-0") as stream:
            events = stream.until(lambda e: e["event"] == "record" and e["data"].get("tick") == -1)
        seqs[name] = [r["seq"] for r in records(events) if r["kind"] == "node"]

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    watchers = [threading.Thread(target=watch, args=(name,)) for name in "ab"]
    for thread in threads + watchers:
        thread.start()
    for thread in threads:
        thread.join()
    # watchers that came late must have registered before the end is published
    portal.wait_for(lambda: portal.server._hub.stream_count == 2)
    publish(portal, -1)
    for thread in watchers:
        thread.join()
    kept = tree.history("root/host-0", n=100_000).records
    published = [record.seq for record in kept if record.kind == "node"]
    for seen in seqs.values():
        del published[published.index(seen[-1]) + 1 :]
        assert seen == published[-len(seen) :]
        assert len(seen) >= 512


def test_the_clock_comes_when_asked_for(portal):
    with portal.stream("/stream?clock=1") as stream:
        first = stream.until(lambda event: event["event"] == "clock")[-1]
        second = stream.until(lambda event: event["event"] == "clock")[-1]
    assert set(first["data"]) == {"epoch", "total", "eta", "elapsed"}
    assert second["data"]["elapsed"] > first["data"]["elapsed"]


def test_a_silent_stream_is_kept_alive_by_comments(portal, monkeypatch):
    monkeypatch.setattr("flodl.web.hub._PING_S", 0.0)
    with portal.raw() as client:
        client.sendall(b"GET /stream?path=root HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = b""
        while b": ping\n\n" not in heard:
            part = client.recv(65536)
            assert part, "the stream ended"
            heard += part
    assert b"retry: 2000\n\n" in heard


def test_the_end_of_the_run_is_told_once_with_everything_before_it(portal):
    with portal.stream("/stream?path=root") as stream, portal.stream("/events") as feed:
        stream.next()
        publish(portal, 777)
        portal.board.finish("done", archive="runs/dash.html")
        events = stream.until(lambda event: event["event"] == "complete")
        assert [r for r in records(events) if r.get("tick") == 777]
        end = events[-1]["data"]
        assert (end["status"], end["archive"]) == ("done", "runs/dash.html")
        assert feed.until(lambda event: event["event"] == "complete")
        portal.server.stop()
        assert [e["event"] for e in stream.rest()] == []


def test_a_late_viewer_of_a_finished_run_is_told_the_end(portal):
    portal.board.finish("done")
    with portal.stream("/stream") as stream:
        assert stream.until(lambda event: event["event"] == "complete")


def test_the_epoch_feed_starts_with_all_epochs_and_goes_on(portal):
    with portal.stream("/events") as feed:
        events = feed.until(lambda event: event["data"]["epoch"] == 3)
        portal.run.run_epochs(2)
        events += feed.until(lambda event: event["data"]["epoch"] == 5)
    assert [event["data"]["epoch"] for event in events] == [1, 2, 3, 4, 5]
    assert [event["id"] for event in events] == list("12345")
    assert [event["data"] for event in events] == portal.get("/api/history").json()
    with portal.stream("/events", **{"last-event-id": "4"}) as feed:
        assert feed.next()["data"]["epoch"] == 5


def test_a_slow_reader_is_told_to_resync_while_others_lose_nothing(portal):
    report = {"k" * 100 + str(n): 1.0 for n in range(150)}
    with portal.raw() as slow, portal.stream("/stream?path=root/host-0/rank0") as stream:
        slow.sendall(b"GET /stream?path=root/host-0/rank0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        portal.wait_for(lambda: portal.server._hub.stream_count == 2)
        stream.next()
        path, tick = "root/host-0/rank0", 1000
        while not any(client.is_ending for client in portal.server._hub._clients):
            assert tick < 3000, "sixty megabytes did not fill the buffers"
            for _ in range(20):
                tick += 1
                given = NodeReport(path=path, metrics=report, work=1, tick=tick)
                portal.board.tree.publish([given])
            stream.until(is_tick(tick))
        text = b""
        while not text.endswith(b"0\r\n\r\n"):
            part = slow.recv(1 << 20)
            assert part
            text += part
    assert b"event: resync" in text[-200:]


def test_the_fifth_stream_of_a_browser_is_told_to_poll(portal):
    cookie = {"cookie": f"flodl_browser_{portal.server.port}=abc"}
    portal.wait_for(lambda: portal.server._hub.stream_count == 0)
    sockets = []
    try:
        for number in range(4):
            raw = portal.raw()
            sockets.append(raw)
            raw.sendall(
                b"GET /stream HTTP/1.1\r\nHost: localhost\r\n"
                + f"Cookie: {cookie['cookie']}\r\n\r\n".encode()
            )
            portal.wait_for(lambda n=number: portal.server._hub.stream_count == n + 1)
        assert portal.get("/stream", headers=cookie).status_code == 204
        with portal.stream("/stream") as program:
            assert program.next()["event"] == "hello"
    finally:
        for raw in sockets:
            raw.close()
    portal.wait_for(lambda: portal.server._hub.stream_count == 0)


def test_records_with_line_breaks_stay_one_event(portal):
    with portal.stream("/stream") as stream:
        portal.board.tree.log("root", "a\n\nevent: evil\ndata: {}\n\n")
        event = stream.until(lambda e: e["event"] == "record" and e["data"]["kind"] == "log")[-1]
    assert event["data"]["text"] == "a\n\nevent: evil\ndata: {}\n\n"
    assert json.dumps(event["data"])


def test_a_page_may_ask_for_fewer_digits_of_children_and_gets_all_else_as_it_is(portal):
    report = NodeReport(
        path="root/host-0/rank0",
        metrics={"1.23456789": 1.23456789, "tiny": 1.23456789e-9, "count": 123456789.0},
        nonfinite={"bad": {"nan": 1}},
        work=1,
        tick=4242,
        res={"vram_total": 98765432101, "gpu_util": 33.333333333},
        label="v1.23456789",
        producer="rank0",
    )
    portal.board.tree.alert("drift", "root/host-0/rank0", "by 1.23456789")
    portal.board.tree.publish([replace(report, metrics={**report.metrics, "bad": math.nan})])
    seen = {}
    for digits in ("", "&digits=4"):
        with portal.stream(f"/stream?path=root/host-0{digits}") as stream:
            seen[digits] = records(stream.until(is_tick(4242)))
    whole, brief = (seen[d][-1] for d in ("", "&digits=4"))
    above = [[r for r in seen[d] if r.get("path") == "root/host-0"] for d in ("", "&digits=4")]
    assert above[0] == above[1]
    assert whole["metrics"]["1.23456789"] == 1.23456789
    assert brief["metrics"] == {
        "1.23456789": 1.235,
        "tiny": 1.235e-9,
        "count": 123456789,
        "bad": None,
    }
    assert brief["res"]["vram_total"] == 98765432101
    assert brief["res"]["gpu_util"] == 33.33
    assert {k: v for k, v in brief.items() if k not in {"metrics", "res"}} == {
        k: v for k, v in whole.items() if k not in {"metrics", "res"}
    }
    assert "by 1.23456789" in [r.get("detail") for r in seen["&digits=4"]]


@pytest.mark.parametrize("digits", ["0", "-1", "x", "1.5"])
def test_a_wrong_number_of_digits_is_refused(portal, digits):
    answer = portal.get(f"/stream?digits={digits}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_query")


def test_what_the_run_is_comes_once_however_often_it_changed(portal):
    for epoch in range(5):
        portal.board.tree.describe(total_epochs=100 + epoch)
    with portal.stream("/stream?path=root") as stream:
        publish(portal, 777)
        seen = records(stream.until(is_tick(777)))
    metas = [record for record in seen if record["kind"] == "meta"]
    assert [meta["run"]["total_epochs"] for meta in metas] == [104]
