"""Both vendors together, and what the callers of detection see."""

import logging
import os
import subprocess
import sys

import pytest

import flodl_sys
from flodl_sys.errors import GpuDetectionError
from flodl_sys.gpu import NoteKind, Vendor, scan_gpus

ROWS = """\
0, GPU-11111111, NVIDIA A, 9.0, 100
1, GPU-22222222, NVIDIA B, 8.0, 200
"""
CARD = {"simd_count": 120, "gfx_target_version": 100300, "device_id": 29631, "unique_id": 7}


@pytest.fixture
def mixed(machine):
    machine.nvidia_rows(ROWS)
    machine.kfd_device()
    machine.kfd_node(1, CARD)
    return machine


def named(gpus):
    return [(gpu.vendor, gpu.index) for gpu in gpus]


@pytest.mark.usefixtures("mixed")
def test_both_vendors_are_merged_nvidia_first():
    everything = [(Vendor.NVIDIA, 0), (Vendor.NVIDIA, 1), (Vendor.AMD, 0)]
    assert named(flodl_sys.detect_gpus()) == everything
    assert named(scan_gpus().gpus) == everything


@pytest.mark.usefixtures("mixed")
def test_masks_apply_to_what_a_process_may_use_not_to_what_is_there(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert named(flodl_sys.detect_gpus()) == [(Vendor.NVIDIA, 1)]
    assert len(flodl_sys.detect_gpus_physical()) == 3


@pytest.mark.usefixtures("machine")
def test_a_machine_without_gpus_has_none_without_a_word(caplog):
    assert flodl_sys.detect_gpus(strict=True) == []
    assert not caplog.records


def test_a_broken_tool_is_logged_and_the_other_vendors_gpus_remain(mixed, caplog):
    mixed.nvidia_smi("echo broken >&2; exit 9")
    with caplog.at_level(logging.WARNING, logger="flodl_sys"):
        assert named(flodl_sys.detect_gpus()) == [(Vendor.AMD, 0)]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("GPU detection (nvidia): ")
    assert line.endswith("failed with exit code 9: broken")
    assert [note.kind for note in scan_gpus().notes] == [NoteKind.TOOL_FAILED]


def test_a_broken_tool_is_an_error_when_strict(mixed):
    mixed.nvidia_smi("echo broken >&2; exit 9")
    for detect in (flodl_sys.detect_gpus, flodl_sys.detect_gpus_physical):
        with pytest.raises(GpuDetectionError, match="failed with exit code 9: broken\nhint: "):
            detect(strict=True)


@pytest.mark.usefixtures("mixed")
def test_a_mask_that_names_nothing_is_an_error_when_strict(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    with pytest.raises(GpuDetectionError, match="CUDA_VISIBLE_DEVICES=5: '5' names none of the 2"):
        flodl_sys.detect_gpus(strict=True)


@pytest.mark.usefixtures("mixed")
def test_detection_loads_no_torch_no_native_part_and_no_runtime():
    code = (
        "import sys, flodl_sys; flodl_sys.detect_gpus()\n"
        "print([m for m in sys.modules if m in ('torch', 'ctypes', 'flodl_sys._core')])\n"
        "print([line for line in open('/proc/self/maps') if 'cuda' in line or 'libamd' in line])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "[]\n[]\n"
