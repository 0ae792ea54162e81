import pytest

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.runner.gpus import GpuScope, device_masks, parse_gpus


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("all", None),
        ("ALL", None),
        ("none", ()),
        ("0", ("0",)),
        ("0,1", ("0", "1")),
        (" 1 , 0 ", ("1", "0")),
        ("03", ("3",)),
        ("GPU-1a2b,MIG-3c", ("GPU-1a2b", "MIG-3c")),
    ],
)
def test_scope_is_read(text, devices):
    assert parse_gpus(text) == GpuScope(devices)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "an empty entry is no GPU"),
        (" ", "an empty entry is no GPU"),
        ("0,,1", "an empty entry is no GPU"),
        ("0,", "an empty entry is no GPU"),
        ("zero", "'zero' is no GPU"),
        ("-1", "'-1' is no GPU"),
        ("0,all", "'all' is no GPU"),
        ("0,0", "0 is listed twice"),
        ("1,01", "1 is listed twice"),
    ],
)
def test_misuse_is_an_error(text, part):
    with pytest.raises(UsageError) as caught:
        parse_gpus(text)
    assert part in caught.value.message


def test_listed_devices_limit_both_vendors():
    assert device_masks(GpuScope(("1", "0"))) == {
        "CUDA_VISIBLE_DEVICES": "1,0",
        "HIP_VISIBLE_DEVICES": "1,0",
    }
    assert device_masks(GpuScope(())) == {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a fake nvidia-smi and a fake AMD tree, as many GPUs as asked for."""

    def make(*, nvidia=0, amd=0):
        tools = tmp_path / "tools"
        tools.mkdir()
        if nvidia:
            rows = "".join(
                f"{i}, GPU-{i:08x}-0000-0000-0000-000000000000, NVIDIA H200, 9.0, 143771\\n"
                for i in range(nvidia)
            )
            tool = tools / "nvidia-smi"
            tool.write_text(f"#!/bin/sh\nprintf '{rows}'\n")
            tool.chmod(0o755)
        for i in range(amd):
            node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{i}"
            node.mkdir(parents=True)
            (node / "properties").write_text("simd_count 304\ngfx_target_version 90402\n")
        monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
        monkeypatch.setenv("FLODL_HW_ROOT", str(tmp_path))

    return make


def test_all_counts_the_devices_of_every_vendor(machine):
    machine(nvidia=2, amd=1)
    assert device_masks(GpuScope(None)) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HIP_VISIBLE_DEVICES": "0",
    }


def test_all_without_any_device_is_an_error(machine):
    machine()
    with pytest.raises(FdlError, match="--gpus all: no GPU is found on this machine") as caught:
        device_masks(GpuScope(None))
    assert caught.value.exit_code == 1
