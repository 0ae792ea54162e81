"""Each sink against its real library, without a network."""

import json
import math
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flodl.core.errors import ConfigError
from flodl.core.paths import RecordPathError
from flodl.monitor import Monitor
from flodl.monitor.errors import MissingExtraError
from flodl.monitor.sinks import MLflowSink, OtlpSink, TensorBoardSink, WandbSink, WebhookSink
from flodl.monitor.sinks.points import flat_settings, point_name, points_of
from flodl.records import NodeReport, RecordTree


def run_with(sink):
    """Two ranks, two windows, one epoch, a NaN and its alert."""
    with Monitor(1, progress="none", name="net", sinks=[sink]) as monitor:
        monitor.set_metadata({"lr": 0.1, "schedule": {"kind": "cosine"}})
        tree = monitor.board.tree
        for tick in range(2):
            tree.publish(
                [
                    NodeReport(
                        path=f"root/rank{rank}",
                        metrics={"loss": 1.0 + rank - tick / 2, "grad": [0.5, math.nan][tick]},
                        work=1,
                        tick=tick,
                        step=10 * (tick + 1),
                    )
                    for rank in range(2)
                ]
            )
        tree.publish(
            [
                NodeReport(
                    path=f"root/rank{rank}",
                    metrics={"accuracy": 0.9},
                    work=1,
                    epoch=0,
                    epoch_complete=True,
                )
                for rank in range(2)
            ]
        )


def library(name):
    return pytest.importorskip(name, exc_type=ImportError)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_holds_levels_as_runs_and_values_by_step(tmp_path):
    library("tensorboard")
    run_with(TensorBoardSink(tmp_path, levels=["root", "root/rank1"]))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    root, rank = EventAccumulator(str(tmp_path)), EventAccumulator(str(tmp_path / "rank1"))
    root.Reload()
    rank.Reload()
    assert [(e.step, e.value) for e in root.Scalars("loss")] == [(10, 1.5), (20, 1.0)]
    assert [(e.step, e.value) for e in rank.Scalars("loss")] == [(10, 2.0), (20, 1.5)]
    assert [e.step for e in root.Scalars("epoch/accuracy")] == [1]
    assert math.isnan(root.Scalars("grad")[1].value)
    assert "nonfinite" in str(root.Tensors("alerts/text_summary")[0].tensor_proto)


def log_to_wandb(folder):
    """Print the rows that go to the library."""
    sink = WandbSink("project", mode="offline", folder=folder)
    opened = sink.open

    def open_and_watch(run):
        opened(run)
        log = sink._run.log
        sink._run.log = lambda row: print(json.dumps(row)) or log(row)

    sink.open = open_and_watch
    run_with(sink)


@pytest.mark.slow
def test_wandb_writes_one_offline_run(tmp_path):
    library("wandb")
    # in a process of its own: the library leaves threads behind
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "WANDB_SILENT": "true"},
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert list(folder.glob("*.wandb"))
    assert [row["loss"] for row in rows if "loss" in row] == [1.5, 1.0]
    assert [row["flodl_step"] for row in rows] == [10, 20, 1]
    assert rows[-1]["epoch/accuracy"] == 0.9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_writes_one_run_into_its_store(tmp_path, monkeypatch):
    library("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run_with(MLflowSink(uri, experiment="tests", levels=["root", "root/rank0"]))
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("tests")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params == {"lr": "0.1", "schedule.kind": "cosine"}
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(10, 1.5), (20, 1.0)]
    assert client.get_metric_history(run.info.run_id, "rank0/loss")[0].value == 1.0
    assert run.data.metrics["epoch/accuracy"] == 0.9
    assert "grad became nan" in run.data.tags["alert.nonfinite"]


WEB = "http://127.0.0.1:1"


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-type"] == "application/json":
            body = json.loads(body)
        self.server.received.append(body)
        headers = {name.casefold(): value for name, value in self.headers.items()}
        self.server.requests.append((self.path, headers))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    server.received, server.answers, server.requests = [], [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def alerts(*severities):
    tree = RecordTree()
    return [
        record
        for number, severity in enumerate(severities)
        for record in tree.alert(f"c{number}", "root", "text", severity=severity)
    ]


def hook(receiver, **options):
    sink = WebhookSink(f"http://127.0.0.1:{receiver.server_port}/", sleep=lambda _: None, **options)
    sink.open({"id": "x", "label": "net", "metadata": {"secret": 1}})
    return sink


def test_a_webhook_gets_alerts_of_its_severity(receiver):
    hook(receiver, min_sev="warn").write(alerts("info", "warn", "critical"))
    assert [body["alert"]["sev"] for body in receiver.received] == ["warn", "critical"]
    assert receiver.received[0]["run"] == {"id": "x", "label": "net"}


def test_a_webhook_is_tried_three_times(receiver):
    receiver.answers = [500, 503]
    hook(receiver).write(alerts("critical"))
    assert len(receiver.received) == 3
    receiver.answers = [500, 500, 500]
    with pytest.raises(OSError, match="500"):
        hook(receiver).write(alerts("critical"))


def test_a_webhook_needs_a_web_address_and_a_severity():
    with pytest.raises(ConfigError, match="file:///etc/passwd"):
        WebhookSink("file:///etc/passwd")
    with pytest.raises(ConfigError, match="'loud'.*info, warn, critical"):
        WebhookSink("http://localhost", min_sev="loud")


def attributes(part):
    return {a.key: a.value.string_value for a in part.attributes}


def test_a_collector_gets_gauges_at_their_time_and_alerts_as_events(receiver):
    metrics = library("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    logs = library("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    url = f"http://127.0.0.1:{receiver.server_port}/"
    sink = OtlpSink(url, headers={"x-key": "secret"}, levels=["root", "root/rank1"])
    run_with(sink)
    gauges, events, resources = {}, [], []
    for (path, headers), body in zip(receiver.requests, receiver.received, strict=True):
        assert headers["content-type"] == "application/x-protobuf"
        assert headers["x-key"] == "secret"
        if path == "/v1/metrics":
            (part,) = metrics.ExportMetricsServiceRequest.FromString(body).resource_metrics
            for metric in part.scope_metrics[0].metrics:
                gauges.setdefault(metric.name, []).extend(metric.gauge.data_points)
        else:
            assert path == "/v1/logs"
            (part,) = logs.ExportLogsServiceRequest.FromString(body).resource_logs
            events += part.scope_logs[0].log_records
        resources.append(attributes(part.resource))
    assert {(r["service.name"], r["flodl.run.label"]) for r in resources} == {("flodl", "net")}
    found = [(attributes(p)["flodl.path"], p.as_double) for p in gauges["flodl.loss"]]
    assert found == [("root/rank1", 2.0), ("root", 1.5), ("root/rank1", 1.5), ("root", 1.0)]
    assert [attributes(p)["flodl.cadence"] for p in gauges["flodl.accuracy"]] == ["epoch"] * 2
    assert all(p.time_unix_nano > 1e18 for p in gauges["flodl.loss"])
    assert math.isnan(gauges["flodl.grad"][-1].as_double)
    assert [(e.event_name, e.severity_number, e.body.string_value) for e in events] == [
        ("flodl.nonfinite", 13, "grad became nan")
    ] * 2
    assert {attributes(e)["flodl.path"] for e in events} == {"root/rank0", "root/rank1"}


def test_names_of_gauges_are_legal_ones(receiver):
    metrics = library("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    sink = OtlpSink(f"http://127.0.0.1:{receiver.server_port}")
    sink.open({"id": "x"})
    tree = RecordTree()
    sink.write(tree.publish([NodeReport(path="root", metrics={"ä b{}": 1.0}, work=1, tick=0)]))
    (body,) = receiver.received
    request = metrics.ExportMetricsServiceRequest.FromString(body)
    (metric,) = request.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "flodl.__b__"


def test_a_collector_that_refuses_is_an_error_for_who_counts_them(receiver):
    library("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    receiver.answers = [503]
    sink = OtlpSink(f"http://127.0.0.1:{receiver.server_port}")
    sink.open({})
    with pytest.raises(OSError, match="503"):
        sink.write(alerts("critical"))


def test_a_collector_needs_a_web_address():
    with pytest.raises(ConfigError, match="localhost:4318.*http://"):
        OtlpSink("localhost:4318")


@pytest.mark.parametrize(
    ("module", "extra", "make"),
    [
        ("tensorboard", "tensorboard", lambda: TensorBoardSink("x")),
        ("wandb", "wandb", lambda: WandbSink("x")),
        ("mlflow.entities", "mlflow", lambda: MLflowSink("x")),
        ("opentelemetry.proto.collector.logs.v1.logs_service_pb2", "otlp", lambda: OtlpSink(WEB)),
    ],
)
def test_a_missing_library_names_the_command_at_construction(monkeypatch, module, extra, make):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'flodl\[{extra}\]'"):
        make()


def test_a_level_must_be_a_record_path():
    library("tensorboard")
    with pytest.raises(RecordPathError):
        TensorBoardSink("x", levels=["rank0"])


def test_settings_are_flattened_and_names_tell_levels_apart():
    assert flat_settings({"a": {"b": 1, "c": [1, 2]}, "d": None}) == {
        "a.b": 1,
        "a.c": "[1, 2]",
        "d": None,
    }
    tree = RecordTree()
    made = tree.publish(
        [NodeReport(path="root/a/rank1", metrics={"loss": 1.0}, epoch=4, epoch_complete=True)]
    )
    (point,) = points_of(made, frozenset(["root/a/rank1"]))
    assert (point_name(point), point.step) == ("a/rank1/epoch/loss", 5)


if __name__ == "__main__":
    log_to_wandb(sys.argv[1])
