import gc
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from flodl.core.errors import ConfigError
from flodl.core.resources import GpuSnapshot
from flodl.device.sampler import ResourceSampler, physical_indices


class FakeProbe:
    def __init__(self, *utils):
        self.utils = list(utils)
        self.asked = 0

    def read(self):
        self.asked += 1
        util = self.utils.pop(0) if self.utils else None
        return [
            GpuSnapshot(device_index=i, name=f"gpu{i}", util_percent=util, vram_total_bytes=100)
            for i in range(3)
        ]


def sampler(probe, allocated=None, devices=None):
    held = {} if allocated is None else allocated
    return ResourceSampler(devices, probe=probe, allocated=lambda: held)


def test_a_reader_gets_the_envelope_and_not_the_latest_value():
    polled = sampler(FakeProbe(100.0, 80.0, 0.0), devices=[1])
    reader = polled.reader()
    for _ in range(3):
        polled.poll()
    sample, spreads = reader.read()
    (gpu,) = sample.gpus
    assert (gpu.device_index, gpu.util_percent) == (1, 60.0)
    assert (spreads[1]["util_percent"].low, spreads[1]["util_percent"].high) == (0.0, 100.0)
    assert sample.ram_total_bytes > 0
    assert sample.cpu_percent is not None


def test_each_reader_has_an_envelope_of_its_own():
    polled = sampler(FakeProbe(10.0, 30.0), devices=[0])
    first = polled.reader()
    polled.poll()
    second = polled.reader()
    polled.poll()
    assert first.read()[0].gpus[0].util_percent == 20.0
    assert second.read()[0].gpus[0].util_percent == 30.0
    assert first.read()[0].gpus == ()


def test_what_no_poll_measured_is_absent():
    polled = sampler(FakeProbe(None), devices=[0])
    reader = polled.reader()
    polled.poll()
    sample, _ = reader.read()
    assert sample.gpus[0].util_percent is None
    assert sample.gpus[0].vram_total_bytes == 100


def test_the_runs_devices_are_those_this_process_allocated_on():
    probe, allocated = FakeProbe(5.0, 5.0, 5.0), {}
    polled = sampler(probe, allocated)
    assert polled.poll().gpus == ()
    assert probe.asked == 0
    allocated[2] = 70
    (gpu,) = polled.poll().gpus
    assert (gpu.device_index, gpu.vram_allocated_bytes) == (2, 70)
    allocated.clear()
    assert [g.device_index for g in polled.poll().gpus] == [2]
    assert polled.poll().gpus[0].vram_allocated_bytes is None


def test_the_thread_polls_until_it_is_stopped():
    probe = FakeProbe()
    polled = ResourceSampler([0], probe=probe, poll_ms=1, allocated=dict)
    polled.start()
    thread = polled._thread
    polled.start()
    assert polled._thread is thread
    deadline = time.monotonic() + 10
    while probe.asked < 3:
        assert time.monotonic() < deadline
    polled.stop()
    polled.stop()
    assert not thread.is_alive()


def test_dropping_the_sampler_ends_its_thread():
    polled = ResourceSampler([0], probe=FakeProbe(), poll_ms=1, allocated=dict)
    polled.start()
    thread = polled._thread
    del polled
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_a_failing_probe_is_told_once_and_ends_nothing(caplog):
    class Broken:
        asked = 0

        def read(self):
            self.asked += 1
            raise OSError("driver gone")

    broken = Broken()
    polled = ResourceSampler([0], probe=broken, poll_ms=1, allocated=dict)
    polled.start()
    deadline = time.monotonic() + 10
    while broken.asked < 3:
        assert time.monotonic() < deadline
    polled.stop()
    assert caplog.text.count("driver gone") == 1


@pytest.mark.parametrize("value", [0, -5])
def test_a_pause_that_is_none_is_refused(value):
    with pytest.raises(ConfigError, match="poll_ms"):
        ResourceSampler(poll_ms=value)


def test_a_bad_setting_names_its_variable(monkeypatch):
    monkeypatch.setenv("FLODL_RESOURCE_POLL_MS", "soon")
    with pytest.raises(ConfigError, match="FLODL_RESOURCE_POLL_MS='soon'"):
        ResourceSampler()
    monkeypatch.undo()


NO_CONTEXT = """
from flodl.device.sampler import ResourceSampler
import torch
sampler = ResourceSampler()
sampler.poll()
assert not torch.cuda.is_initialized()
"""


def test_sampling_creates_no_context():
    done = subprocess.run(
        [sys.executable, "-c", NO_CONTEXT], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


class FakeCuda:
    """Two visible devices in reversed order."""

    @staticmethod
    def device_count():
        return 2

    @staticmethod
    def get_device_properties(index):
        return SimpleNamespace(uuid=["b", "a"][index])


def test_visible_devices_are_matched_to_physical_ones_by_uuid(monkeypatch):
    from flodl_sys.gpu import GpuInfo, GpuScan, Vendor

    gpus = tuple(
        GpuInfo(vendor=Vendor.NVIDIA, index=index, name="x", uuid=f"GPU-{uuid}")
        for index, uuid in enumerate("ab")
    )
    monkeypatch.setattr("flodl_sys.scan_gpus", lambda: GpuScan(gpus), raising=False)
    monkeypatch.setattr("flodl_sys.detect_gpus", lambda: list(gpus), raising=False)
    assert physical_indices(SimpleNamespace(cuda=FakeCuda)) == {0: 1, 1: 0}
