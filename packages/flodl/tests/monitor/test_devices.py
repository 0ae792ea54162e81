"""One process that drives several GPUs: a node for each of them."""

import pytest

from flodl.core.resources import GpuSnapshot, ResourceSample
from flodl.device.sampler import ResourceSampler
from flodl.monitor import Monitor


class FakeProbe:
    def __init__(self, count):
        self.count = count
        self.readings = 0

    def read(self):
        self.readings += 1
        return [
            GpuSnapshot(
                device_index=index,
                name=f"card {index}",
                util_percent=10.0 * self.readings + index,
                vram_total_bytes=8 << 30,
            )
            for index in range(self.count)
        ]


@pytest.fixture
def watched(monkeypatch):
    """A monitor of a process with so many GPUs, and what reads them once."""
    made = []

    def start(gpus):
        allocated = {index: (1 + index) << 30 for index in range(gpus)}
        sampler = ResourceSampler(
            range(gpus), probe=FakeProbe(gpus), allocated=lambda: allocated, poll_ms=1e9
        )
        monkeypatch.setattr("flodl.monitor.monitor.ResourceSampler", lambda: sampler)
        monkeypatch.setattr(sampler, "start", lambda: None)
        made.append(Monitor(4, progress="none"))
        return made[-1], sampler.poll

    yield start
    for monitor in made:
        monitor.finish()


def test_each_of_several_devices_is_a_node_below_the_root(watched):
    monitor, poll = watched(2)
    poll()
    poll()
    monitor.log(0, 1.0, {"loss": 0.5})
    tree = monitor.board.tree
    assert tree.paths() == ["root", "root/gpu0", "root/gpu1"]
    device = tree.current("root/gpu1")
    assert (device["label"], device["device"]) == ("card 1", 1)
    assert device["res"]["gpu_util"] == 16.0
    assert device["res"]["gpu_util_max"] == 21.0
    root = tree.current("root")
    assert root["metrics"] == {"loss": 0.5}
    assert root["res"]["gpus"] == 2
    assert root["res"]["gpu_util"] == 15.5
    assert root["res"]["vram_alloc"] == 3 << 30
    assert root["res"]["vram_total"] == 16 << 30
    assert "label" not in root
    assert root["children"] == 2


def test_the_roots_numbers_stay_those_of_the_process_over_epochs_and_windows(watched, caplog):
    monitor, poll = watched(2)
    monitor.reports_per_epoch(1)
    for epoch in range(2):
        poll()
        with monitor.epoch(epoch, steps=1) as scope:
            scope.step(samples=8, loss=1.0 + epoch)
            poll()
    rows = [r.body() for r in monitor.board.tree.recent_rows("root", 10)]
    assert [(r["metrics"]["loss"], r["work"]) for r in rows] == [
        (1.0, 8),
        (1.0, 8),
        (2.0, 8),
        (2.0, 8),
    ]
    assert caplog.text == ""


def test_a_single_device_is_the_root_with_its_peak(watched):
    monitor, poll = watched(1)
    poll()
    poll()
    monitor.log(0, 1.0, {"loss": 0.5})
    root = monitor.board.tree.current("root")
    assert monitor.board.tree.paths() == ["root"]
    assert (root["label"], root["device"]) == ("card 0", 0)
    assert (root["res"]["gpu_util"], root["res"]["gpu_util_max"]) == (15.0, 20.0)
    assert root["res"]["vram_alloc_max"] == 1 << 30


def test_a_process_without_devices_shows_its_host_alone(watched):
    monitor, _ = watched(0)
    monitor.log(0, 1.0, {"loss": 0.5})
    assert monitor.board.tree.paths() == ["root"]
    assert "gpu_util" not in monitor.board.tree.current("root").get("res", {})


def test_a_sample_of_no_device_has_no_peaks():
    from flodl.monitor.devices import peak_body

    assert peak_body(ResourceSample(), {}) == {}


def test_the_hardware_of_the_run_is_shown_with_its_devices(watched):
    monitor, poll = watched(2)
    poll()
    monitor.log(0, 1.0, {"loss": 0.5})
    meta = monitor.board.api_meta()
    processor, _, cards = meta["hardware"].partition(" | ")
    assert "threads, " in processor
    assert cards == "card 0 (8GB) + card 1 (8GB)"
    assert [gpu["dev"] for gpu in meta["gpus"]] == [0, 1]
