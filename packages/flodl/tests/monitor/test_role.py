import io

import pytest

from flodl.monitor import Monitor
from flodl.monitor.role import is_primary


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"FLODL_INTERNAL_ROLE": "launcher"}, True),
        ({"FLODL_INTERNAL_ROLE": "rank"}, False),
        ({"FLODL_INTERNAL_ROLE": "controller"}, False),
        ({"MASTER_ADDR": "a", "WORLD_SIZE": "4", "RANK": "0"}, True),
        ({"MASTER_ADDR": "a", "WORLD_SIZE": "4", "RANK": "3"}, False),
        # a rank that flodl has started says so by its role alone
        ({"RANK": "3"}, True),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, True),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2"}, False),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, True),
    ],
)
def test_one_process_of_a_run_is_the_one_that_people_watch(environment, expected):
    assert is_primary(environment) is expected


class Recorder:
    def __init__(self):
        self.calls = []

    def open(self, run):
        self.calls.append("open")

    def write(self, records):
        self.calls.append("write")

    def close(self, status):
        self.calls.append("close")


def test_the_monitor_of_a_rank_shows_nothing_and_keeps_its_history(monkeypatch, tmp_path):
    monkeypatch.setenv("FLODL_INTERNAL_ROLE", "rank")
    out, sink = io.StringIO(), Recorder()
    monitor = Monitor(2, name="run", stream=out, sinks=[sink])
    assert monitor.serve(4711) == "http://localhost:4711"
    monitor.record_log(tmp_path / "log")
    monitor.save_html(tmp_path / "page.html")
    monitor.set_metadata({"lr": 0.1})
    record = monitor.log(0, 1.0, {"loss": 0.5})
    with monitor.epoch(1, steps=1) as epoch:
        epoch.step(loss=0.25)
    monitor.finish()
    for path in (
        monitor.export_csv(tmp_path / "a.csv"),
        monitor.write_log(tmp_path / "a.log"),
        monitor.save_now(tmp_path / "now.html"),
    ):
        assert not path.exists()
    assert out.getvalue() == ""
    assert list(tmp_path.iterdir()) == []
    assert monitor.plane.portal is None
    assert sink.calls == []
    assert monitor.sinks == (sink,)
    assert [r.metrics for r in monitor.history] == [record.metrics, {"loss": 0.25}]


def test_the_monitor_of_a_rank_still_refuses_what_is_wrong(monkeypatch):
    monkeypatch.setenv("FLODL_INTERNAL_ROLE", "rank")
    with Monitor(1) as monitor, pytest.raises(Exception, match="port=99999"):
        monitor.serve(99999)
