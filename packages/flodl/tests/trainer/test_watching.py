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
from flodl.records import Reduction
from flodl.records.errors import RecordLogError


def build(device):
    return FlowBuilder(nn.Linear(1, 4)).tag("hidden").through(nn.Linear(4, 1)).label("line").build()


def step(model, batch):
    record_scalar("rows", float(batch.size))
    return (model(batch[0]) - 3 * batch[0]).square().mean()


def builder(tmp_path, epochs=3):
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
    broken = builder(tmp_path).save_dashboard(page)
    broken._factories = (*broken._factories[:2], lambda model, batch: 1 / 0)
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
    assert "  epoch 3/3  loss=" in capsys.readouterr().out


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
