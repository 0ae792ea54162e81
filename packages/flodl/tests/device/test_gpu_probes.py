from types import SimpleNamespace

import pytest

from flodl.device.gpu_probes import AmdProbe, NvmlProbe, SmiProbe


class FakeNvml:
    """A driver with two GPUs; ``broken`` names the queries that fail."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, broken=(), mig=()):
        self.broken = set(broken)
        self.mig = set(mig)

    def _ask(self, name, value):
        if name in self.broken:
            raise self.NVMLError(name)
        return value

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return self._ask("name", b"H200" if handle == 0 else "GTX")

    def nvmlDeviceGetUUID(self, handle):
        return self._ask("uuid", f"GPU-{handle}")

    def nvmlDeviceGetUtilizationRates(self, handle):
        return self._ask("util", SimpleNamespace(gpu=90 + handle))

    def nvmlDeviceGetMemoryInfo(self, handle):
        return self._ask("memory", SimpleNamespace(used=100, total=1000))

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._ask("power", 123_000)

    def nvmlDeviceGetTemperature(self, handle, kind):
        return self._ask("temperature", 55)

    def nvmlDeviceGetMigMode(self, handle):
        if handle not in self.mig:
            raise self.NVMLError("not supported")
        return (1, 1)


def test_every_field_of_every_gpu_is_read():
    first, second = NvmlProbe(FakeNvml()).read()
    assert (first.device_index, first.name, first.uuid) == (0, "H200", "GPU-0")
    assert (first.util_percent, first.power_w, first.temp_c) == (90.0, 123.0, 55)
    assert (second.vram_used_bytes, second.vram_total_bytes) == (100, 1000)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("util", ["util_percent"]),
        ("memory", ["vram_used_bytes", "vram_total_bytes"]),
        ("power", ["power_w"]),
        ("temperature", ["temp_c"]),
        ("uuid", ["uuid"]),
    ],
)
def test_one_unsupported_field_takes_no_other_with_it(query, fields):
    (reading, _) = NvmlProbe(FakeNvml(broken=[query])).read()
    names = "util_percent vram_used_bytes vram_total_bytes power_w temp_c uuid".split()
    absent = [name for name in names if getattr(reading, name) is None]
    assert sorted(absent) == sorted(fields)


def test_utilization_of_a_sliced_gpu_is_absent_and_not_zero():
    first, second = NvmlProbe(FakeNvml(mig=[1])).read()
    assert first.util_percent == 90.0
    assert second.util_percent is None
    assert second.vram_total_bytes == 1000


SMI = """\
0, GPU-a, NVIDIA A100, 97, 1024, 81920, 250.12, 61
1, GPU-b, NVIDIA T4, odd name, [N/A], 10, 20, [Not Supported], 40
garbage
"""


def test_the_tool_is_asked_at_most_every_two_seconds():
    now, asked = [0.0], []
    probe = SmiProbe(ask=lambda: asked.append(1) or SMI, clock=lambda: now[0])
    first, second = probe.read()
    assert (first.util_percent, first.vram_used_bytes, first.power_w) == (97.0, 1 << 30, 250.12)
    assert (second.name, second.util_percent, second.power_w) == ("NVIDIA T4, odd name", None, None)
    now[0] = 1.9
    assert probe.read() == []
    now[0] = 2.0
    assert len(probe.read()) == 2
    assert len(asked) == 2


def card(root, number, **files):
    device = root / f"sys/class/drm/card{number}/device"
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(f"{text}\n")


def test_amd_gpus_are_read_from_their_drivers_files(tmp_path):
    card(tmp_path, 10, vendor="0x1002", gpu_busy_percent=7)
    card(
        tmp_path,
        2,
        vendor="0x1002",
        gpu_busy_percent=66,
        mem_info_vram_used=5,
        mem_info_vram_total=50,
        product_name="MI300X",
    )
    card(tmp_path, 3, vendor="0x10de")
    first, second = AmdProbe(tmp_path).read()
    assert (first.name, first.util_percent, first.vram_used_bytes) == ("MI300X", 66, 5)
    assert (second.device_index, second.util_percent, second.vram_total_bytes) == (1, 7, None)
    assert not AmdProbe(tmp_path / "nothing").has_gpus
