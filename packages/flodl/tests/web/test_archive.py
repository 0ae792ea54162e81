import base64
import gzip
import hashlib
import json
import re

import pytest

from flodl.records import NodeReport
from flodl.records.board import RunBoard
from flodl.testing.fake_run import FakeRun, FakeRunShape
from flodl.web import archive
from flodl.web.archive import page_with_data, portal_file, snapshot
from flodl.web.page_files import PORTAL, TIMELINE, page_files


@pytest.fixture
def board():
    run = FakeRun(FakeRunShape(ranks=4, hosts=2, epochs=3, windows=5))
    run.run_epochs(3)
    run.board.finish("done")
    return run.board


def data_of(page):
    found = re.search(
        r'<script type="application/json" id="flodl-data"( data-encoding="gzip")?>(.*?)</script>',
        page.decode(),
        re.S,
    )
    body = found[2]
    return json.loads(gzip.decompress(base64.b64decode(body)) if found[1] else body)


def test_a_snapshot_holds_every_level_with_what_the_store_has(board):
    data = json.loads(snapshot(board))
    tree = board.tree
    assert list(data["nodes"]) == tree.paths()
    for path, node in data["nodes"].items():
        assert node["node"] == tree.current(path)
        assert node["series"]["keys"] == tree.series(path).body()["keys"]
        assert node["rows"] == [r.body() for r in tree.recent_rows(path, 512)]
    assert data["epochs"] == [json.loads(line) for line in board.epochs()]
    assert data["status"] == "done"
    assert data["resolution"] == "every point"
    assert data["meta"]["run"] == data["run"]
    assert data["api_meta"]["metadata"]["optimizer"] == "AdamW"
    assert data["graph_svg"].startswith("<svg")


def test_the_server_gives_the_same_snapshot(board, serve):
    served = serve(board).get("/snapshot").json()
    saved = json.loads(snapshot(board))
    saved.pop("saved_ts")
    served.pop("saved_ts")
    assert served == saved


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_the_page_is_one_file_that_reaches_nothing(board, theme):
    page = portal_file(board, theme=theme)
    text = page.decode()
    assert data_of(page)["nodes"].keys() == set(board.tree.paths())
    assert not re.search(r'(src|href)="(static|http)', text)
    assert "<!--" not in text.partition("<body")[0]
    assert (f'data-pin="{theme}"' in text.partition(">")[0] + text[:200]) == (theme != "auto")


def test_every_inline_script_and_style_is_hashed_in_the_policy(board):
    text = portal_file(board).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    inline = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", text, re.S)
    inline += re.findall(r"<style>(.*?)</style>", text, re.S)
    assert len(inline) >= 3
    for script in inline:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_modules_are_bundled_imports_first_and_without_import_lines(board):
    text = portal_file(board).decode()
    (bundle,) = re.findall(r'<script type="module">(.*?)</script>', text, re.S)
    assert not re.search(r"^(import|export) ", bundle, re.M)
    assert bundle.index("class HttpSource") < bundle.index("new HttpSource")


def test_hostile_texts_cannot_leave_the_data():
    board = RunBoard()
    evil = "</script><script>alert(1)</script>\u2028<!--&"
    board.tree.publish([NodeReport(path="root", metrics={evil[:100].replace("\u2028", ""): 1.0})])
    board.set_metadata({evil: evil})
    board.set_facts(label=evil)
    page = portal_file(board)
    assert b"alert(1)</script>" not in page
    assert "\u2028" not in page.decode()
    assert data_of(page)["api_meta"]["label"] == evil


def test_large_data_is_packed_and_unpacks_to_the_same(monkeypatch, board):
    monkeypatch.setattr(archive, "_PACK_BEYOND", 100)
    data = data_of(portal_file(board))
    plain = json.loads(snapshot(board))
    assert data["nodes"] == plain["nodes"]


def test_a_run_that_is_too_large_keeps_its_start_and_end_at_half_the_resolution():
    board = RunBoard()
    for tick in range(900):
        metrics = {f"k{n}": tick * 1.1 + n for n in range(20)}
        board.tree.publish([NodeReport(path="root", metrics=metrics, work=1, tick=tick)])
    whole = portal_file(board)
    page = portal_file(board, max_bytes=len(whole) - 20_000)
    series = data_of(page)["nodes"]["root"]["series"]
    assert len(page) < len(whole)
    assert series["keys"]["k0"]["min"][0] == 0.0
    assert series["keys"]["k0"]["max"][-1] == 899 * 1.1
    assert data_of(page)["resolution"].startswith("1 of ")
    assert len(data_of(page)["nodes"]["root"]["rows"]) < 512


def test_a_page_that_cannot_be_small_enough_is_given_and_told(board, caplog):
    assert len(portal_file(board, max_bytes=1000)) > 1000
    assert "more than the 1000 allowed" in caplog.text


def test_the_timeline_page_is_made_the_same_way():
    page = page_with_data(TIMELINE, b'{"v":1}')
    assert data_of(page) == {"v": 1}


def test_every_file_of_the_pages_is_there_and_digested():
    files = page_files()
    assert {PORTAL, TIMELINE, "app.js", "uPlot.iife.min.js"} <= files.content.keys()
    assert len(files.digest) == 16
