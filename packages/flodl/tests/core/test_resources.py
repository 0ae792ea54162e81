import math

from flodl.core.resources import (
    Envelope,
    GpuSnapshot,
    ResourceSample,
    Spread,
    host_body,
    sample_body,
)

GIB = 1 << 30


def gpu(index=0, **fields):
    return GpuSnapshot(device_index=index, name="gpu", **fields)


def test_an_envelope_holds_what_came_since_it_was_read():
    envelope = Envelope()
    for value in (1.0, 5.0, math.nan, None, math.inf, 3.0):
        envelope.add(value)
    assert envelope.read() == Spread(1.0, 3.0, 5.0, 3)
    assert envelope.read() is None
    envelope.add(0.0)
    assert envelope.read() == Spread(0.0, 0.0, 0.0, 1)


def test_totals_leave_out_what_no_device_tells():
    sample = ResourceSample(gpus=(gpu(util_percent=100.0), gpu(1, util_percent=0.0), gpu(2)))
    assert sample.gpu_util_percent == 50.0
    assert sample.vram_allocated_bytes is None
    assert sample.spill_bytes == 0
    assert sample_body(sample) == {"gpu_util": 50.0, "gpus": 3}
    assert sample_body(ResourceSample()) == {}


def test_what_exceeds_the_devices_is_spill():
    sample = ResourceSample(gpus=(gpu(vram_allocated_bytes=7 * GIB, vram_total_bytes=6 * GIB),))
    assert sample.spill_bytes == GIB


def test_the_summary_names_only_what_was_measured():
    sample = ResourceSample(
        cpu_percent=12.4,
        ram_used_bytes=2 * GIB,
        ram_total_bytes=4 * GIB,
        gpus=(gpu(util_percent=82.0, vram_allocated_bytes=GIB, vram_total_bytes=6 * GIB),),
    )
    assert sample.summary() == "CPU 12% | RAM 2.0 GB/4.0 GB | GPU 82% | VRAM 1.0 GB/6.0 GB"
    assert ResourceSample().summary() == ""
    assert host_body(sample) == {"cpu": 12.4, "ram_used": 2 * GIB, "ram_total": 4 * GIB}


def test_power_adds_up_and_temperature_peaks():
    sample = ResourceSample(gpus=(gpu(power_w=100.0, temp_c=50.0), gpu(1, power_w=50.0)))
    body = sample_body(sample)
    assert (body["power_w"], body["temp_c"]) == (150.0, 50.0)
