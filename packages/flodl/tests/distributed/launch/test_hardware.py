import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.launch.hardware import chosen_devices, hardware_line
from flodl_sys.gpu import GpuInfo, Vendor

GIB = 1 << 30


def gpu(index, name="NVIDIA GeForce RTX 5060 Ti", vram=16 * GIB, uuid=None):
    return GpuInfo(vendor=Vendor.NVIDIA, index=index, name=name, vram_bytes=vram, uuid=uuid)


TWO = [gpu(0, uuid="GPU-a"), gpu(1, "NVIDIA GeForce GTX 1060", 6 * GIB, uuid="GPU-b")]


@pytest.mark.parametrize(
    ("gpus", "line"),
    [
        (
            TWO,
            "ddp: 2 GPUs (heterogeneous) | RTX 5060 Ti (16.0 GB) | GTX 1060 (6.0 GB)",
        ),
        ([gpu(0), gpu(1)], "ddp: 2 GPUs | RTX 5060 Ti (16.0 GB) | RTX 5060 Ti (16.0 GB)"),
        ([gpu(0, "NVIDIA H200", 141 * GIB)], "ddp: 1 GPU | H200 (141.0 GB) | single-device mode"),
        ([gpu(0, "NVIDIA GB10", None)], "ddp: 1 GPU | GB10 | single-device mode"),
        ([], "ddp: no CUDA available | CPU mode"),
    ],
)
def test_the_line_tells_what_a_run_has(gpus, line):
    assert hardware_line(gpus) == line


def test_without_a_wish_all_gpus_are_taken_else_the_cpu():
    assert [d.uuid for d in chosen_devices(None, None, TWO)] == ["GPU-a", "GPU-b"]
    assert [d.uuid for d in chosen_devices(None, None, [])] == ["cpu"]
    assert [d.index for d in chosen_devices(None, 3, TWO)] == [0, 1, 2]


@pytest.mark.parametrize("wanted", [["cuda:1", "cuda:0"], [1, 0], ["1", "0"]])
def test_named_gpus_are_taken_in_that_order(wanted):
    found = chosen_devices(wanted, None, TWO)
    assert [(d.uuid, d.index, d.vram) for d in found] == [
        ("GPU-b", 1, 6 * GIB),
        ("GPU-a", 0, 16 * GIB),
    ]


def test_the_cpu_may_be_taken_several_times_and_a_gpu_may_not():
    assert len(chosen_devices(["cpu", "cpu"], None, TWO)) == 2
    with pytest.raises(ConfigError, match="twice"):
        chosen_devices([0, "cuda:0"], None, TWO)


@pytest.mark.parametrize("wanted", [["cuda:2"], ["gpu"], ["cpu", 0, "x"], [-1]])
def test_a_device_that_is_not_here_is_an_error_that_names_it(wanted):
    with pytest.raises(ConfigError, match="this host offers cuda:0 to cuda:1"):
        chosen_devices(wanted, None, TWO)
    with pytest.raises(ConfigError, match="no GPU"):
        chosen_devices(["cuda:0"], None, [])
