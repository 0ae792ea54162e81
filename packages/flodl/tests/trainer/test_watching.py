import io
import json
import re
import urllib.error
import urllib.request

import pytest
import torch
from torch import nn

from flodl import FlowBuilder, Monitor, Trainer, record_scalar
from flodl.core.errors import ConfigError
from flodl.data import TensorDataSet
from flodl.monitor.plane import RunPlane
from flodl.monitor.timeline import Timeline
from flodl.records import NodeReport, Reduction
from flodl.records.board import RunBoard
from flodl.records.errors import RecordLogError
from flodl.trainer.watching import DashboardOptions, RecordLogOptions, SavedDashboard, Watching


def build(device):
    return FlowBuilder(nn.Linear(1, 4)).tag("hidden").through(nn.Linear(4, 1)).label("line").build()


def step(model, batch):
    record_scalar("rows", float(batch.size))
    return (model(batch[0]) - 3 * batch[0]).square().mean()


def linear_step(model, batch):
    return model(batch[0]).square().mean()


def builder(tmp_path, epochs=3, step=step):
    x = torch.linspace(-1, 1, 32).reshape(-1, 1)
    return (
        Trainer.builder(build, lambda parameters: torch.optim.SGD(parameters, lr=0.1), step)
        .dataset(TensorDataSet(x))
        .batch_size(8)
        .num_epochs(epochs)
        .devices(["cpu"])
    )


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_the_portal_serves_the_run_while_it_trains(tmp_path):
    monitor, seen = Monitor(3, progress="none"), []

    def look(metrics):
        seen.append(get(f"{monitor.plane.portal.url}/history?path=root"))

    builder(tmp_path).monitor(monitor).dashboard(0).metrics_fn(look).run()
    assert len(seen) == 3
    assert "loss" in json.dumps(seen[-1])
    with pytest.raises(urllib.error.URLError):
        get(f"{monitor.plane.portal.url}/paths")


def test_the_saved_page_holds_every_epoch_and_the_model(tmp_path):
    page, monitor = tmp_path / "run.html", Monitor(3, progress="none")
    builder(tmp_path).save_dashboard(page).dashboard_theme("dark").monitor(monitor).run()
    data = re.search(r'id="flodl-data">(.*?)</script>', page.read_text(), flags=re.S)
    assert len(monitor.history) == 3
    assert all(str(record.metrics["loss"]) in data[1] for record in monitor.history)
    assert build(None).structural_hash in data[1]
    assert r'"graph_svg":"\u003csvg' in data[1]


def test_the_saved_page_is_written_when_the_run_fails(tmp_path):
    page = tmp_path / "run.html"
    broken = builder(tmp_path, step=lambda model, batch: 1 / 0).save_dashboard(page)
    with pytest.raises(ZeroDivisionError):
        broken.run()
    assert page.stat().st_size > 1000


def test_the_record_log_has_one_record_for_each_epoch(tmp_path):
    folder = tmp_path / "records"
    builder(tmp_path).record_log(folder).monitor(Monitor(3, progress="none")).run()
    lines = [
        json.loads(line)
        for file in sorted(folder.rglob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    losses = [line["metrics"]["loss"] for line in lines if "loss" in line.get("metrics", {})]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


class ListSink:
    def __init__(self):
        self.records, self.status = [], None

    def open(self, run):
        self.run = run

    def write(self, records):
        self.records.extend(records)

    def close(self, status):
        self.status = status


def test_a_sink_gets_every_epoch_and_how_the_run_ended(tmp_path):
    sink = ListSink()
    chosen = builder(tmp_path).sinks([sink]).scalar_reduction("rows", Reduction.SUM)
    chosen.monitor(Monitor(3, progress="none")).run()
    numbers = [record for record in sink.records if record.kind == "node"]
    assert len(numbers) == 3
    assert str(sink.status) == "done"


def test_without_a_monitor_one_is_made_and_prints_the_epochs(tmp_path, capsys):
    builder(tmp_path).record_log(tmp_path / "records").run()
    assert "  epoch 3/3  loss=" in capsys.readouterr().err


def test_a_record_log_in_a_place_that_cannot_be_written_stops_the_run(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RecordLogError, match="file"):
        builder(tmp_path).record_log(tmp_path / "file" / "records").run()


def test_a_theme_without_a_saved_page_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="save_dashboard is not"):
        builder(tmp_path).dashboard_theme("dark").monitor(Monitor(3, stream=io.StringIO())).run()


def test_what_is_no_sink_is_named(tmp_path):
    with pytest.raises(ConfigError, match="sinks: 'tensorboard' is no sink"):
        builder(tmp_path).sinks(["tensorboard"]).run()


def test_wrong_options_are_all_named():
    watching = Watching(reports_per_epoch=-1, timeline="x", sinks=[3], dashboard_theme="dark")
    problems = "\n".join(watching.problems())
    for text in ("reports_per_epoch=-1", "timeline='x'", "sinks: 3", "dashboard_theme is set"):
        assert text in problems


@pytest.mark.parametrize(
    "options",
    [
        {"reports_per_epoch": 4},
        {"timeline": Timeline(poll_ms=0, spill=False)},
        {"profile_graph": True},
    ],
)
def test_each_option_alone_needs_a_monitor(options):
    assert not Watching().is_on
    assert Watching(**options).is_on
    assert Watching(**options).problems() == []


def test_the_model_is_shown_by_the_cost_of_its_nodes_and_left_as_it_was():
    torch.manual_seed(0)
    model = FlowBuilder(nn.Linear(1, 4)).through(nn.BatchNorm1d(4)).through(nn.Dropout()).build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    passes = []

    def forward():
        record_scalar("rows", 3.0)
        passes.append((model.training, torch.is_grad_enabled(), model.profiling))
        return model(torch.rand(3, 1))

    with Monitor(1, progress="none") as monitor:
        Watching(profile_graph=True).show_profile(monitor, model, forward)
        assert "ms" in monitor.board.svg or "us" in monitor.board.svg
    assert passes == [(False, False, False), (False, False, True)]
    assert model.training
    assert not model.profiling
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_that_cannot_be_timed_is_a_warning(caplog):
    def fail():
        raise ValueError("no batch")

    model = build("cpu")
    with Monitor(1, progress="none") as monitor:
        Watching(profile_graph=True).show_profile(monitor, model, fail)
        assert monitor.board.svg is None
    assert "could not be timed: no batch" in caplog.text
    assert model.training


def test_nothing_is_timed_unless_asked_for_and_only_graphs_can_be():
    def fail():
        raise AssertionError("it must not run")

    with Monitor(1, progress="none") as monitor:
        Watching().show_profile(monitor, build("cpu"), fail)
        Watching(profile_graph=True).show_profile(monitor, nn.Linear(1, 1), fail)


class Recorder:
    def __init__(self):
        self.records = []

    def open(self, run):
        pass

    def write(self, records):
        self.records += records

    def close(self, status):
        pass


def test_the_settings_are_carried_out_where_ranks_are_directed(tmp_path):
    given, own = Recorder(), Recorder()
    timeline = Timeline(poll_ms=0, spill=False)
    watching = Watching(
        record_log=RecordLogOptions(folder=tmp_path / "log"),
        save_dashboard=SavedDashboard(path=tmp_path / "run.html"),
        dashboard_theme="light",
        scalar_reduction={"hits": Reduction.SUM},
        sinks=[own],
        timeline=timeline,
    )
    plane = RunPlane(RunBoard())
    watching.equip(plane, [given])
    plane.board.tree.publish([NodeReport(path="root/rank0", metrics={"hits": 1.0}, work=1)])
    plane.finish("done")
    assert 'data-theme="light"' in (tmp_path / "run.html").read_text()
    assert (tmp_path / "log" / "root" / "rank0.jsonl").exists()
    assert json.loads((tmp_path / "log" / "meta.json").read_text())["reductions"]["hits"] == "sum"
    assert [r.path for r in own.records if r.kind == "node"] == ["root/rank0", "root"]
    assert len(given.records) == len(own.records)
    assert list(plane.board.timelines) == [timeline.host]


def test_the_place_of_the_portal_is_what_was_asked_for():
    assert Watching().place is None
    place = Watching(dashboard=DashboardOptions(port=4000, token="secret")).place
    assert (place.port, place.host, place.token) == (4000, "127.0.0.1", "secret")


def test_losses_are_reported_within_each_epoch(tmp_path):
    clock = iter(range(10**6))
    monitor = Monitor(2, progress="none", clock=lambda: next(clock))
    builder(tmp_path, epochs=2).reports_per_epoch(2).monitor(monitor).run()
    rows = [record.body() for record in monitor.board.tree.recent_rows("root", 100)]
    windows = [row for row in rows if "tick" in row]
    assert [(row["epoch"], row["step"], row["work"]) for row in windows] == [
        (0, 2, 16),
        (0, 4, 16),
        (1, 6, 16),
        (1, 8, 16),
    ]
    assert all(row["metrics"].keys() == {"loss", "throughput"} for row in windows)
    epochs = [row for row in rows if row.get("epoch_complete")]
    for epoch, row in enumerate(epochs):
        parts = [w["metrics"]["loss"] for w in windows if w["epoch"] == epoch]
        assert row["metrics"]["loss"] == pytest.approx(sum(parts) / 2)
    assert [row["step"] for row in epochs] == [4, 8]
    assert monitor.board.tree.run["reports_per_epoch"] == 2


def test_the_step_of_a_report_is_the_optimizers(tmp_path):
    clock = iter(range(10**6))
    monitor = Monitor(1, progress="none", clock=lambda: next(clock))
    builder(tmp_path, epochs=1).accumulate(2).reports_per_epoch(2).monitor(monitor).run()
    rows = [record.body() for record in monitor.board.tree.recent_rows("root", 100)]
    assert [row["step"] for row in rows if row["kind"] == "node"] == [1, 2, 2]


def test_a_timeline_runs_with_the_training_and_marks_its_epochs(tmp_path):
    timeline = Timeline(poll_ms=10, spill=False)
    monitor = Monitor(2, progress="none")
    builder(tmp_path, epochs=2).timeline(timeline).monitor(monitor).run()
    events = [(event["k"], event.get("epoch")) for event in timeline.body()["events"]]
    assert events == [("epoch_start", 0), ("epoch_end", 0), ("epoch_start", 1), ("epoch_end", 1)]
    assert monitor.board.timelines == {timeline.host: timeline}
    assert timeline._repeater is None


def test_the_cost_of_the_nodes_is_shown_at_the_end_and_changes_nothing(tmp_path):
    states = []
    for is_on in (False, True):
        monitor = Monitor(2, progress="none")
        handle = builder(tmp_path, epochs=2).profile_graph(is_on).monitor(monitor).run()
        states.append(handle.join().params)
        assert (monitor.board.svg is not None) is is_on
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert monitor.board.metadata["parameters"]["total"] == 13


def test_a_handle_sets_up_a_monitor_that_was_not_there_before(tmp_path):
    handle = builder(tmp_path, epochs=2).run()
    monitor = Monitor(2, progress="none")
    monitor.set_metadata({"seed": "mine"})
    handle.setup_monitor(monitor)
    facts = monitor.board.api_meta()
    model = build(torch.device("cpu"))
    assert (facts["label"], facts["hash"]) == (model.label or "Graph", model.structural_hash)
    assert facts["graph"]
    assert handle.architecture_svg.startswith("<")
    shown = facts["metadata"]
    assert (shown["epochs"], shown["batch_size"], shown["samples"]) == (2, 8, 32)
    assert shown["seed"] == "mine"
    assert shown["parameters"]["total"] == 13
    monitor.finish()


def test_a_handle_of_no_graph_has_no_picture(tmp_path):
    run = Trainer.builder(
        lambda device: nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), linear_step
    )
    points = TensorDataSet(torch.ones(8, 1))
    handle = run.dataset(points).batch_size(4).num_epochs(1).devices(["cpu"]).run()
    assert handle.architecture_svg is None
    assert handle.portrait().settings["model"] == "Linear"


def test_wrong_options_are_errors_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match="reports_per_epoch=-2"):
        builder(tmp_path).reports_per_epoch(-2).run()
