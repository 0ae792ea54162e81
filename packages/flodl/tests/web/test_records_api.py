import csv
import io
import itertools

import pytest

from flodl.records import NodeReport, RecordTree
from flodl.records.board import RunBoard


def test_paths_are_in_natural_order_and_can_be_cut_to_a_subtree(reading):
    assert reading.get("/paths").json() == [
        "root",
        "root/host-0",
        "root/host-0/rank0",
        "root/host-0/rank1",
        "root/host-1",
        "root/host-1/rank2",
        "root/host-1/rank3",
    ]
    cut = reading.get("/paths", params={"prefix": "root/host-1"}).json()
    assert cut == ["root/host-1", "root/host-1/rank2", "root/host-1/rank3"]


def test_a_node_comes_with_its_direct_children_and_their_spread(reading):
    body = reading.get("/node?path=root/host-1").json()
    assert body["known"] is True
    assert body["node"]["path"] == "root/host-1"
    assert [c["path"] for c in body["children"]] == ["root/host-1/rank2", "root/host-1/rank3"]
    assert body["total_children"] == 2
    assert set(body["summary"]["loss"]) == {"min", "p50", "max", "min_path", "max_path"}


def test_the_default_path_is_the_root(reading):
    assert reading.get("/node").json()["path"] == "root"


@pytest.mark.parametrize("spelling", ["root/host-1", "root%2Fhost-1", "%72oot/host-1"])
def test_raw_and_encoded_paths_mean_the_same(reading, spelling):
    assert reading.get(f"/node?path={spelling}").json()["node"]["path"] == "root/host-1"


def test_an_unseen_path_is_an_answer_and_no_error(reading):
    response = reading.get("/node?path=root/host-9")
    assert response.status_code == 200
    assert response.json() == {
        "path": "root/host-9",
        "known": False,
        "node": None,
        "children": [],
        "total_children": 0,
        "summary": {},
    }


def test_children_are_paged_sorted_and_filtered_by_the_server(reading):
    query = {"path": "root", "limit": 1, "offset": 1, "sort": "loss", "order": "desc"}
    all_of_them = reading.get("/node").json()["children"]
    lowest = min(all_of_them, key=lambda child: child["metrics"]["loss"])
    body = reading.get("/node", params=query).json()
    assert [c["path"] for c in body["children"]] == [lowest["path"]]
    assert body["total_children"] == 2
    assert reading.get("/node?filter=HOST-1").json()["total_children"] == 1


def test_history_is_what_was_published_oldest_first(reading):
    rows = reading.get("/history?path=root/host-0&n=5").json()
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    assert len(rows) == 5
    since = rows[2]["seq"]
    response = reading.get(f"/history?path=root/host-0&since={since}")
    assert response.json() == rows[3:]
    assert "x-flodl-gap" not in response.headers


def test_series_hold_every_key_and_the_resources(reading):
    body = reading.get("/series?path=root&keys=loss,res.gpu_util&points=3").json()
    assert sorted(body["keys"]) == ["loss", "res.gpu_util"]
    assert len(body["t"]) == len(body["epoch"]) == len(body["step"]) == 3
    assert set(body["keys"]["loss"]) == {"min", "max", "mean", "last"}
    assert "accuracy" in reading.get("/series").json()["keys"]
    assert reading.get("/series?path=root/x").json()["keys"] == {}


def test_a_part_of_the_series_is_finer_than_the_whole(serve):
    seconds = itertools.count(1000)
    board = RunBoard(RecordTree(wall=lambda: next(seconds)))
    for tick in range(100):
        board.tree.publish([NodeReport(path="root", metrics={"loss": tick}, work=1, tick=tick)])
    portal = serve(board)
    whole = portal.get("/series?points=4").json()
    span = {"from": whole["t"][2] + 1, "to": whole["t"][3]}
    part = portal.get("/series", params={"points": 4, **span}).json()
    assert len(set(part["t"]) - set(whole["t"])) == 3


def test_downloads_are_files(reading):
    response = reading.get("/export.csv?path=root/host-1")
    assert response.headers["content-disposition"].endswith('"root-host-1.csv"')
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert len(rows) == len(reading.get("/series?path=root/host-1").json()["t"])
    assert float(rows[-1]["loss"]) > 0
    lines = reading.get("/export.jsonl?path=root/host-1").text.splitlines()
    assert all('"path":"root/host-1"' in line for line in lines)
    for suffix in ("csv", "jsonl"):
        answer = reading.get(f"/export.{suffix}?path=root/nope")
        assert answer.status_code == 404
        assert answer.json()["error"]["message"] == "no records of root/nope"


@pytest.mark.parametrize(
    "path",
    [
        "root/..",
        "root/%2e%2e/x",
        "..%2f..%2fetc",
        "root/%00",
        "root/" + "a" * 600,
        "/root",
        "",
        "root/%252e%252e",
        "root/a/b/c/d/e/f/g/h",
    ],
)
@pytest.mark.parametrize("endpoint", ["node", "history", "stream", "series", "export.csv"])
def test_a_bad_path_is_refused_everywhere(reading, endpoint, path):
    response = reading.get(f"/{endpoint}?path={path}")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "bad_path"


@pytest.mark.parametrize(
    "query",
    [
        "history?n=-1",
        "history?n=x",
        "history?n=1.5",
        "history?since=-5",
        "history?n=99999999999999999999",
        "node?limit=-1",
        "node?limit=²",
        "node?offset=a",
        "node?order=up",
        "series?points=0",
        "series?points=-3",
        "series?from=x",
        "stream?limit=-1",
        "stream?clock=yes",
        "stream?since=x",
    ],
)
def test_a_bad_number_is_refused(reading, query):
    response = reading.get(f"/{query}")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "bad_query"


def test_too_large_numbers_are_cut(reading):
    assert len(reading.get("/history?n=100000").json()) < 8192
    assert len(reading.get("/series?points=999999").json()["t"]) <= 4000
