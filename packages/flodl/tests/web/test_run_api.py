import pytest

from flodl.records.board import RunBoard


def test_epochs_are_listed_from_the_first(portal):
    epochs = portal.get("/api/history").json()
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
    assert set(epochs[0]) >= {"epoch", "total", "duration", "eta", "metrics", "resources", "gpus"}


def test_meta_tells_what_the_run_is(portal):
    meta = portal.get("/api/meta").json()
    assert meta["label"] == "fake resnet"
    assert meta["status"] == "running"
    assert meta["metadata"]["optimizer"] == "AdamW"
    assert meta["gpus"][0] == {"dev": 0, "name": "NVIDIA H200", "vram_total": 151397597184}


def test_alerts_are_those_of_the_subtree(portal):
    portal.board.tree.alert("rank_lost", "root/host-1/rank3", "gone")
    assert [a["class"] for a in portal.get("/api/alerts").json()] == ["rank_lost"]
    assert portal.get("/api/alerts?path=root/host-0").json() == []


def test_pictures_are_served_cleaned(portal):
    portal.board.set_svg(
        '<svg xmlns="http://www.w3.org/2000/svg" onload="x()"><script>x()</script><g/></svg>'
    )
    response = portal.get("/graph.svg")
    assert response.headers["content-type"] == "image/svg+xml"
    assert response.text == '<svg xmlns="http://www.w3.org/2000/svg"><g /></svg>'
    maps = portal.get("/api/heatmaps").json()
    assert [m["model"] for m in maps] == ["NVIDIA H200", "GeForce GTX 1060 6GB"]
    assert portal.get(maps[1]["url"]).text.startswith("<svg")
    for number in ("2", "-1", "x", "²"):
        assert portal.get(f"/api/heatmaps/{number}").status_code == 404


def test_a_run_without_a_picture_says_so(serve):
    response = serve().get("/graph.svg")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


class FixedTimeline:
    def body(self, start_ms=None, end_ms=None):
        return {"v": 1, "from": start_ms, "to": end_ms}


def test_timelines_are_served_by_host(serve):
    board = RunBoard()
    portal = serve(board)
    assert portal.get("/timeline/hosts").json() == {"controller": None, "hosts": []}
    assert portal.get("/timeline").status_code == 404
    board.add_timeline("a", FixedTimeline())
    board.add_timeline("b", FixedTimeline())
    assert portal.get("/timeline/hosts").json() == {"controller": "a", "hosts": ["a", "b"]}
    answer = portal.get("/timeline?host=b&from=5&to=9").json()
    assert answer == {"v": 1, "from": 5, "to": 9}
    assert portal.get("/timeline").json()["from"] is None


def test_health_follows_the_run(portal):
    assert portal.get("/healthz").json() == {"status": "running", "seq": portal.board.tree.seq}
    portal.board.finish("failed")
    assert portal.get("/healthz").json()["status"] == "failed"


@pytest.mark.parametrize("path", ["/nope", "/docs", "/openapi.json", "/redoc", "/static/x/../y"])
def test_there_is_nothing_else(portal, path):
    response = portal.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
