"""A monitor whose run has been taken over by the process that directs the ranks."""

import io
import json
import logging
import re

import httpx
import pytest

from flodl.core.errors import ConfigError
from flodl.core.paths import RecordTier
from flodl.monitor import Monitor, Reduction
from flodl.monitor.plane import RunPlane
from flodl.records.board import RunBoard
from flodl.records.errors import ReductionConflict
from flodl.records.feed import RankFeed
from flodl.web.svg import SvgError

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="4" onclick="x()"/></svg>'


class Recorder:
    def __init__(self):
        self.calls = []

    def open(self, run):
        self.calls.append("open")

    def write(self, records):
        self.calls.append("write")

    def close(self, status):
        self.calls.append(f"close {status}")


@pytest.fixture
def plane():
    """What the controller has."""
    made = RunPlane(RunBoard())
    yield made
    made.finish("aborted")


@pytest.fixture
def monitor():
    out = io.StringIO()
    made = Monitor(2, stream=out)
    made.out = out
    yield made
    made.finish()


def over_the_wire(plane):
    return lambda command: plane.apply(json.loads(json.dumps(command)))


def test_what_was_set_before_and_after_is_shown_where_the_ranks_are_directed(monitor, plane):
    monitor.set_identity("resnet", "abc")
    monitor.set_svg(SVG)
    monitor.set_metadata({"lr": 0.1})
    monitor.scalar_reduction("hits", Reduction.SUM)
    monitor.delegate(over_the_wire(plane))
    monitor.set_metadata({"lr": 0.2})
    assert plane.board.api_meta()["label"] == "resnet"
    assert plane.board.tree.run["hash"] == "abc"
    assert "onclick" not in plane.board.svg
    assert plane.board.metadata == {"lr": 0.2}
    assert json.loads(plane.board.tree.meta.line)["reductions"]["hits"] == "sum"


def test_files_are_written_by_the_one_that_has_taken_over_alone(monitor, plane, tmp_path):
    monitor.record_log(tmp_path / "log")
    monitor.save_html(tmp_path / "page.html", theme="light")
    monitor.delegate(over_the_wire(plane))
    feed = RankFeed(plane.board, RecordTier(["a", "b"]))
    for rank, host in enumerate("ab"):
        feed.join(rank, host)
    feed.begin_epoch(0, work=2)
    feed.window([{"rank": r, "work": 1, "sums": {"loss": [r + 1.0, 1]}} for r in (0, 1)])
    feed.end_epoch(0, duration_secs=1.0)
    monitor.log(0, 1.0, {"loss": 1.5})
    monitor.finish()
    assert plane.board.status == "done"
    page = (tmp_path / "page.html").read_text()
    assert 'data-theme="light"' in page
    data = re.search(r'id="flodl-data">(.*?)</script>', page, flags=re.S).group(1)
    assert "root/a/rank0" in data
    lines = (tmp_path / "log" / "root.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["metrics"]["loss"] == 1.5
    assert json.loads(lines[-1])["children"] == 2
    assert (tmp_path / "log" / "root" / "b" / "rank1.jsonl").exists()


def test_the_launcher_goes_on_to_print_and_to_keep_its_history(monitor, plane):
    monitor.delegate(over_the_wire(plane))
    monitor.log(0, 0.049, {"loss": 1.5})
    monitor.finish()
    assert "epoch 1/2  loss=1.5000" in monitor.out.getvalue()
    assert "training complete" in monitor.out.getvalue()
    assert len(monitor.history) == 1
    assert plane.board.epochs() == []


def test_a_served_port_is_handed_over(monitor, plane):
    url = monitor.serve(0)
    place = monitor.release()
    assert url.endswith(f":{place.port}")
    portal = plane.serve(place)
    assert portal.port == place.port
    monitor.delegate(over_the_wire(plane), url=portal.url)
    assert monitor.serve(0) == portal.url
    assert httpx.get(f"http://127.0.0.1:{portal.port}/healthz", trust_env=False).status_code == 200


def test_nothing_is_released_where_nothing_was_served(monitor):
    assert monitor.release() is None


def test_another_port_than_the_runs_is_warned_of_and_not_opened(monitor, plane, caplog):
    monitor.delegate(over_the_wire(plane), url="http://localhost:4000")
    with caplog.at_level(logging.WARNING):
        assert monitor.serve(4001) == "http://localhost:4000"
    assert "the run is served at http://localhost:4000" in caplog.text
    assert monitor.plane.portal is None


def test_sinks_that_no_record_has_reached_are_never_opened_by_the_launcher(plane):
    sink = Recorder()
    with Monitor(1, progress="none", sinks=[sink]) as monitor:
        monitor.set_identity("x", "y")
        monitor.delegate(over_the_wire(plane))
        monitor.log(0, 1.0, {"loss": 1.0})
    assert sink.calls == []


def test_a_sink_is_opened_with_what_was_set_before_the_first_record():
    opened = []

    class Facts(Recorder):
        def open(self, run):
            opened.append(run)

    with Monitor(1, progress="none", sinks=[Facts()]) as monitor:
        monitor.set_identity("resnet", "abc")
        monitor.set_metadata({"lr": 0.1})
        monitor.log(0, 1.0, {"loss": 1.0})
    assert (opened[0]["label"], opened[0]["metadata"]) == ("resnet", {"lr": 0.1})


def test_an_unknown_operation_is_refused_with_the_known_ones(plane):
    with pytest.raises(ConfigError, match=r"'dance': must be one of finish, heatmap"):
        plane.apply({"op": "dance"})


def test_refusals_reach_the_caller(monitor, plane):
    monitor.delegate(plane.apply)
    with pytest.raises(ReductionConflict):
        monitor.scalar_reduction("loss", Reduction.SUM)
    with pytest.raises(SvgError):
        monitor.set_svg("<html/>")


def test_heat_maps_come_by_model(plane):
    plane.apply({"op": "heatmap", "model": "H200", "svg": SVG})
    assert [heatmap.model for heatmap in plane.board.heatmaps] == ["H200"]
    assert "onclick" not in plane.board.heatmaps[0].svg


def test_the_name_of_the_monitor_is_the_runs(plane):
    with Monitor(1, progress="none", name="digits") as monitor:
        monitor.delegate(over_the_wire(plane))
    assert plane.board.api_meta()["label"] == "digits"
