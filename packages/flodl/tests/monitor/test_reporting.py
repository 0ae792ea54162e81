"""A monitored run as its viewers, its files and its console see it."""

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys

import httpx
import pytest

from flodl.core.errors import ConfigError
from flodl.core.resources import GpuSnapshot, ResourceSample
from flodl.metrics import EpochMetrics
from flodl.monitor import Monitor, Reduction
from flodl.monitor.errors import MetricTypeError, MonitorExportError, MonitorFinished
from flodl.records.errors import ReductionConflict
from flodl.web.errors import DashboardAlreadyServing, DashboardBindError


class FakeClock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def out():
    return io.StringIO()


@pytest.fixture
def monitor(out):
    made = Monitor(10, stream=out, name="mlp")
    yield made
    made.finish()


def rows(monitor, path="root"):
    return [r.body() for r in monitor.board.tree.history(path, n=1000).records]


def test_a_logged_epoch_reaches_the_tree_and_the_feed(monitor):
    monitor.log(0, 1.5, {"loss": 0.5, "bad": math.nan})
    (node,) = [row for row in rows(monitor) if row["kind"] == "node"]
    assert node["path"] == "root"
    assert (node["epoch"], node["epoch_complete"]) == (0, True)
    assert node["metrics"] == {"loss": 0.5, "bad": None}
    (epoch,) = map(json.loads, monitor.board.epochs())
    assert (epoch["epoch"], epoch["total"], epoch["duration"]) == (1, 10, 1.5)
    assert epoch["metrics"] == {"loss": 0.5, "bad": None}
    assert "gpu" not in epoch["resources"]


def test_a_repeated_epoch_is_appended_and_marked(monitor):
    for epoch in (0, 1, 1):
        monitor.log(epoch, 1.0, {"loss": 1.0})
    marks = [row.get("restart") for row in rows(monitor) if row["kind"] == "node"]
    assert marks == [None, None, True]
    assert [record.epoch for record in monitor.history] == [0, 1, 1]


def test_the_first_nan_is_an_alert_on_the_console_without_any_flag(monitor, out):
    monitor.log(0, 1.0, {"loss": math.nan})
    monitor.log(1, 1.0, {"loss": math.nan})
    assert out.getvalue().count("critical: nonfinite at root: loss became nan") == 1


def test_a_metric_that_is_none_records_nothing(monitor, out):
    with pytest.raises(MetricTypeError):
        monitor.log(0, 1.0, {"loss": 0.5, "x": "oops"})
    assert monitor.history == ()
    assert out.getvalue() == ""
    assert monitor.board.epochs() == []


@pytest.mark.parametrize("duration", [-1.0, math.nan])
def test_a_duration_that_is_none_is_refused(monitor, duration):
    with pytest.raises(ConfigError, match="duration"):
        monitor.log(0, duration, {})


def test_own_loops_are_followed_step_by_step(out):
    clock = FakeClock()
    with Monitor(2, stream=out, clock=clock) as monitor:
        monitor.reports_per_epoch(4)
        for epoch in range(2):
            with monitor.epoch(epoch, steps=8) as scope:
                for step in range(8):
                    clock.now += 0.5
                    scope.step(samples=32, loss=float(step))
                scope.record(accuracy=0.75)
    windows = [row for row in rows(monitor) if "tick" in row]
    assert [row["tick"] for row in windows] == list(range(8))
    assert [row["step"] for row in windows] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [row["metrics"]["loss"] for row in windows[:4]] == [0.5, 2.5, 4.5, 6.5]
    assert windows[0]["metrics"]["throughput"] == pytest.approx(0.064)
    assert windows[0]["work"] == 64
    assert monitor.history[0].metrics == {"loss": 3.5, "accuracy": 0.75}
    assert monitor.history[0].duration_secs == 4.0
    epochs = [row for row in rows(monitor) if row.get("epoch_complete")]
    assert [row["work"] for row in epochs] == [256, 256]
    assert epochs[-1]["step"] == 16


def test_an_epoch_that_raises_is_not_logged(monitor):
    with pytest.raises(ValueError, match="oops"), monitor.epoch(0) as scope:
        scope.step(loss=1.0)
        raise ValueError("oops")
    assert monitor.history == ()


def test_serving_is_idempotent_on_its_port_and_refuses_another(monitor, out):
    url = monitor.serve(0)
    port = int(url.rpartition(":")[2])
    assert url == f"http://localhost:{port}"
    assert monitor.serve(port) == url
    assert monitor.serve(0) == url
    with pytest.raises(DashboardAlreadyServing, match=str(port)):
        monitor.serve(port - 1)
    assert out.getvalue() == f"  dashboard: {url}/\n"
    monitor.log(0, 1.0, {"loss": 0.5})
    assert httpx.get(f"{url}/api/history").json()[0]["metrics"] == {"loss": 0.5}
    other = Monitor(1, progress="none")
    with pytest.raises(DashboardBindError, match=str(port)):
        other.serve(port)
    other.finish()
    monitor.finish()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    with pytest.raises(MonitorFinished):
        monitor.serve(0)


def test_serving_to_others_makes_up_a_token_and_tells_the_safe_way_first(monitor, out):
    url = monitor.serve(0, host="0.0.0.0")
    first, second = out.getvalue().splitlines()
    assert "ssh -L" in first
    token = second.partition("#token=")[2]
    assert len(token) >= 32
    assert token not in url
    local = f"http://127.0.0.1:{url.rpartition(':')[2]}/paths"
    assert httpx.get(local).status_code == 401
    assert httpx.get(local, headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_host_and_token_come_from_variables_where_they_are_not_given(monitor, out, monkeypatch):
    monkeypatch.setenv("FLODL_DASHBOARD_TOKEN", "from-variable")
    url = monitor.serve(0)
    monkeypatch.undo()
    assert out.getvalue().endswith("#token=from-variable\n")
    assert httpx.get(f"{url}/paths").status_code == 401


def test_settings_of_the_user_win_over_those_of_the_graph(monitor, caplog):
    class FakeGraph:
        label = "net"
        structural_hash = "ab" * 32

        def svg(self):
            return '<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>'

        def parameters(self):
            import torch

            return iter([torch.nn.Parameter(torch.zeros(6)), torch.zeros(4)])

    monitor.set_metadata({"parameters": "mine", "lr": 0.1, "x": {1, 2}.__class__, "n": math.nan})
    monitor.watch(FakeGraph())
    meta = monitor.board.api_meta()
    assert (meta["label"], meta["hash"]) == ("net", "ab" * 32)
    assert meta["metadata"]["parameters"] == "mine"
    assert meta["metadata"]["n"] == "nan"
    assert meta["metadata"]["x"] == "<class 'set'>"
    assert "script" not in monitor.board.svg
    monitor.set_metadata({})
    counts = monitor.board.api_meta()["metadata"]["parameters"]
    assert counts == {"total": 10, "trainable": 6, "frozen": 4}


def test_csv_columns_are_those_of_all_epochs(monitor, tmp_path):
    monitor.log(0, 1.23456, {"loss": 0.5})
    monitor.log(1, 1.0, {"accuracy": 0.0, "loss": 1e-20})
    path = monitor.export_csv(tmp_path / "deep/er/run.csv")
    first, second = csv.DictReader(io.StringIO(path.read_text()))
    assert list(first)[:4] == ["epoch", "duration_s", "loss", "accuracy"]
    assert (first["epoch"], first["duration_s"], first["accuracy"]) == ("1", "1.235", "")
    assert (second["accuracy"], second["loss"]) == ("0", "1e-20")
    assert first["vram_alloc"] == ""


def test_csv_has_columns_per_gpu_where_there_are_several():
    from flodl.monitor.exports import history_csv
    from flodl.monitor.history import EpochRecord, GpuMetrics

    gpus = tuple(
        GpuSnapshot(device_index=i, name="x", util_percent=50.0 * i, vram_allocated_bytes=10)
        for i in range(2)
    )
    record = EpochRecord(
        epoch=0,
        duration_secs=1.0,
        metrics={},
        resources=ResourceSample(gpus=gpus),
        gpu_metrics=(GpuMetrics(device_index=1, throughput=2.5, chunk_ratio=0.4, shard_size=9),),
        eta_secs=None,
    )
    header, row = history_csv([record]).splitlines()
    assert header.endswith(
        "gpu0_util,gpu0_vram_alloc,gpu0_throughput,gpu0_share,"
        "gpu1_util,gpu1_vram_alloc,gpu1_throughput,gpu1_share"
    )
    assert row == "1,1.000,,,25.0,20,,0.0,10,,,50.0,10,2.5,0.4"
    assert history_csv([]).splitlines() == [
        "epoch,duration_s,cpu_pct,ram_used,gpu_pct,vram_alloc,vram_spill"
    ]


def test_the_text_log_holds_the_epoch_lines_without_estimates(tmp_path):
    clock = FakeClock()
    monitor = Monitor(2, progress="none", clock=clock)
    clock.now += 1.4
    monitor.log(0, 1.4, {"loss": 0.5})
    clock.now += 1.4
    text = monitor.write_log(tmp_path / "run.log").read_text()
    assert text == "# flodl training log\nepoch 1/2  loss=0.5000  [1.4s]\n# total: 2.8s\n"
    monitor.finish()


def test_a_file_that_cannot_be_written_leaves_nothing_and_says_why(monitor, tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(MonitorExportError, match="file/run.csv"):
        monitor.export_csv(tmp_path / "file/run.csv")
    with pytest.raises(MonitorExportError):
        monitor.export_csv(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def payload(path):
    import base64
    import gzip

    text = path.read_text()
    start = text.index('id="flodl-data"')
    head, _, rest = text[start:].partition(">")
    body = rest[: rest.index("</script>")]
    if 'data-encoding="gzip"' in head:
        body = gzip.decompress(base64.b64decode(body))
    return json.loads(body)


@pytest.mark.parametrize("error", [None, ValueError])
def test_the_page_is_saved_however_the_run_ends(tmp_path, out, error):
    target = tmp_path / "a/run.html"
    try:
        with Monitor(3, stream=out) as monitor:
            monitor.save_html(target, theme="light")
            monitor.log(0, 1.0, {"loss": 0.5})
            if error is not None:
                raise error
    except ValueError:
        pass
    data = payload(target)
    assert data["status"] == ("done" if error is None else "failed")
    assert data["epochs"][0]["metrics"] == {"loss": 0.5}
    assert data["nodes"]["root"]["series"]["keys"]["loss"]["last"] == [0.5]
    assert 'data-pin="light"' in target.read_text()


def test_a_page_that_cannot_be_saved_is_told_and_ends_nothing(tmp_path, out, caplog):
    (tmp_path / "file").write_text("")
    monitor = Monitor(1, stream=out)
    monitor.save_html(tmp_path / "file/run.html")
    monitor.log(0, 1.0, {})
    monitor.finish()
    assert "training complete" in out.getvalue()
    assert "the page was not saved" in out.getvalue()
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("settings", [{"theme": "blue"}, {"every": 0}])
def test_page_settings_that_are_none_are_refused(monitor, tmp_path, settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        monitor.save_html(tmp_path / "x.html", **settings)


SIGNALED = """
import sys, threading
from flodl.monitor import Monitor
monitor = Monitor(3, progress="none")
monitor.save_html(sys.argv[1])
monitor.log(0, 1.0, {"loss": 0.5})
print("ready", flush=True)
threading.Event().wait()
"""

DROPPED = """
import sys
from flodl.monitor import Monitor
monitor = Monitor(3, stream=sys.stdout)
monitor.save_html(sys.argv[1])
monitor.log(0, 1.0, {"loss": 0.5})
"""


def test_a_run_that_is_terminated_leaves_its_page(tmp_path):
    target = tmp_path / "run.html"
    with subprocess.Popen(
        [sys.executable, "-c", SIGNALED, str(target)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    assert payload(target)["status"] == "aborted"


def test_a_run_that_is_not_finished_ends_as_aborted(tmp_path):
    target = tmp_path / "run.html"
    done = subprocess.run(
        [sys.executable, "-c", DROPPED, str(target)], capture_output=True, text=True, check=True
    )
    assert "training aborted" in done.stdout
    assert payload(target)["status"] == "aborted"


def test_the_record_log_follows_the_run(monitor, tmp_path):
    monitor.record_log(tmp_path / "records")
    monitor.log(0, 1.0, {"loss": 0.5})
    with pytest.raises(ConfigError, match="open already"):
        monitor.record_log(tmp_path / "other")
    monitor.finish()
    lines = (tmp_path / "records/root.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["metrics"] == {"loss": 0.5}
    assert json.loads((tmp_path / "records/meta.json").read_text())["run"]["label"] == "mlp"


def test_reductions_are_declared_to_the_tree(monitor):
    monitor.scalar_reduction("grad_norm", Reduction.MAX)
    assert monitor.board.tree.meta.body()["reductions"]["grad_norm"] == "max"
    with pytest.raises(ReductionConflict):
        monitor.scalar_reduction("loss", Reduction.SUM)


def test_ranks_of_an_epoch_show_their_share():
    from flodl.monitor.history import gpu_metrics_of

    metrics = EpochMetrics(
        epoch=0,
        avg_loss=0.5,
        epoch_ms=1.0,
        batches_processed=1,
        samples_processed=40,
        lr=0.1,
        world_size=2,
        per_rank_samples=[30, 10],
        per_rank_throughput=[3.0, 1.0],
    )
    first, second = gpu_metrics_of(metrics)
    assert (first.chunk_ratio, second.chunk_ratio) == (0.75, 0.25)
    assert (first.throughput, second.shard_size) == (3.0, 10)


def test_an_unknown_progress_mode_lists_the_legal_ones():
    with pytest.raises(ConfigError, match="'bar'.*'plain', 'rich', 'tqdm', 'none'"):
        Monitor(1, progress="bar")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("mode", ["rich", "tqdm"])
def test_bars_keep_the_plain_line_of_each_epoch(mode):
    pytest.importorskip(mode)
    out = Terminal()
    with Monitor(2, progress=mode, stream=out, clock=FakeClock()) as monitor:
        for epoch in range(2):
            monitor.log(epoch, 1.4, {"loss": 0.5})
    text = out.getvalue()
    assert "  epoch 1/2  loss=0.5000  [1.4s  ETA 1.4s]" in text
    assert "  training complete" in text
    assert "100%" in text or "━" in text


@pytest.mark.parametrize("mode", ["rich", "tqdm"])
def test_bars_are_plain_lines_where_there_is_no_terminal(out, mode):
    pytest.importorskip(mode)
    with Monitor(1, progress=mode, stream=out, clock=FakeClock()) as monitor:
        monitor.log(0, 1.4, {"loss": 0.5})
    assert out.getvalue().splitlines()[0] == "  epoch 1/1  loss=0.5000  [1.4s]"


def test_a_notebook_shows_a_chart_and_a_table_without_scripts(monitor):
    assert monitor._repr_html_() == "<p>no epochs yet</p>"
    monitor.log(0, 1.0, {"loss": 2.0, "<script>": 1.0})
    monitor.log(1, 1.0, {"loss": math.nan})
    monitor.log(2, 1.0, {"loss": 1.0})
    html = monitor._repr_html_()
    assert html.count("<tr>") == 4
    assert "<script" not in html
    assert 'd="M28.0 28.0M612.0 172.0"' in html


def test_a_notebook_shows_the_page_in_a_frame_where_it_may(monitor, capsys):
    pytest.importorskip("IPython")
    url = monitor.serve(0)
    monitor.display(embed_origin="http://localhost:8888")
    assert f'<iframe src="{url}"' in monitor._repr_html_(framed=True)
    policy = httpx.get(f"{url}/healthz").headers["content-security-policy"]
    assert "frame-ancestors http://localhost:8888" in policy


def test_the_history_is_a_data_frame(monitor):
    pytest.importorskip("pandas")
    monitor.log(0, 1.0, {"loss": 2.0})
    monitor.log(1, 1.5, {"accuracy": 0.5})
    frame = monitor.history_frame()
    assert list(frame.index) == [1, 2]
    assert frame["duration_s"].tolist() == [1.0, 1.5]
    assert frame["loss"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("library", "extra", "use"),
    [
        ("pandas", "pandas", lambda m: m.history_frame()),
        ("IPython.display", "notebook", lambda m: m.display()),
        ("tqdm", "tqdm", lambda m: Monitor(1, progress="tqdm")),
        ("rich.progress", "rich", lambda m: Monitor(1, progress="rich")),
    ],
)
def test_a_missing_library_names_the_command_that_brings_it(
    monitor, monkeypatch, library, extra, use
):
    from flodl.monitor.errors import MissingExtraError

    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'flodl\[{extra}\]'"):
        use(monitor)


def test_watching_loads_no_server_and_touches_no_gpu():
    script = (
        "import sys; from flodl.monitor import Monitor; m = Monitor(1, progress='none'); "
        "m.log(0, 1.0, {'loss': 1.0}); m.finish(); "
        "assert 'fastapi' not in sys.modules and 'uvicorn' not in sys.modules; "
        "torch = sys.modules.get('torch'); "
        "assert torch is None or not torch.cuda.is_initialized()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_serving_without_its_libraries_names_the_command_and_all_else_works(tmp_path):
    script = """
import sys
sys.modules["fastapi"] = None
from pathlib import Path
from flodl.monitor import Monitor
monitor = Monitor(1, progress="none")
monitor.save_html(sys.argv[1])
try:
    monitor.serve(0)
except ImportError as error:
    print(error)
monitor.log(0, 1.0, {"loss": 1.0})
monitor.finish()
"""
    page = tmp_path / "run.html"
    done = subprocess.run(
        [sys.executable, "-c", script, str(page)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'flodl[monitor]'" in done.stdout
    assert payload(page)["status"] == "done"
