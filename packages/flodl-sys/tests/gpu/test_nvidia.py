"""nvidia-smi: rows of machines with none, one, two kinds, eight and sliced GPUs, and failures."""

import stat
import time

import pytest

from flodl_sys.gpu.model import GpuInfo, NoteKind, Vendor
from flodl_sys.gpu.nvidia import parse_rows, scan_nvidia

ONE = "0, GPU-389a632d-48b7-5a24-c3e0-ae1d148dab70, NVIDIA H200, 9.0, 143771\n"
TWO_KINDS = """\
0, GPU-5f1c3a55-3d6f-6d2b-8a1e-0f2f0f3f4a51, NVIDIA GeForce RTX 5060 Ti, 12.0, 16311
1, GPU-9b0e7f64-70a4-0c2d-9e7b-3f0a5dd91c22, NVIDIA GeForce GTX 1060 6GB, 6.1, 6144
"""
EIGHT = "".join(
    f"{i}, GPU-389a632d-48b7-5a24-c3e0-ae1d148dab7{i}, NVIDIA H200, 9.0, 143771\n" for i in range(8)
)
# a container that was given one slice of an A100: the whole GPU's memory is not its business
MIG = """\
0, GPU-2c1d0f4e-96f4-8a7c-5a1b-7d3e1f0b2c44, NVIDIA A100-SXM4-40GB, 8.0, \
[Insufficient Permissions]
"""
UNIFIED = "0, GPU-aa0f2f7e-11d3-4c55-b7a2-2f5f60d8c9aa, NVIDIA GB10, 12.1, [N/A]\n"


def kinds(scan):
    return [note.kind for note in scan.notes]


def test_one_gpu_has_all_its_facts(machine):
    machine.nvidia_rows(ONE)
    scan = scan_nvidia(machine.root)
    assert scan.notes == ()
    assert scan.gpus == (
        GpuInfo(
            vendor=Vendor.NVIDIA,
            index=0,
            name="NVIDIA H200",
            uuid="GPU-389a632d-48b7-5a24-c3e0-ae1d148dab70",
            arch="sm_90",
            compute_capability=(9, 0),
            vram_bytes=143771 * 2**20,
        ),
    )


def test_two_kinds_keep_their_order(machine):
    machine.nvidia_rows(TWO_KINDS)
    scan = scan_nvidia(machine.root)
    assert [(g.index, g.name, g.arch) for g in scan.gpus] == [
        (0, "NVIDIA GeForce RTX 5060 Ti", "sm_120"),
        (1, "NVIDIA GeForce GTX 1060 6GB", "sm_61"),
    ]


def test_eight_gpus_are_eight(machine):
    machine.nvidia_rows(EIGHT)
    scan = scan_nvidia(machine.root)
    assert [gpu.index for gpu in scan.gpus] == list(range(8))
    assert len({gpu.uuid for gpu in scan.gpus}) == 8


@pytest.mark.parametrize("rows", [MIG, UNIFIED])
def test_memory_that_the_driver_does_not_tell_is_unknown_not_zero(rows):
    (gpu,) = parse_rows(rows).gpus
    assert gpu.vram_bytes is None
    assert gpu.arch.startswith("sm_")


def test_no_tool_means_no_gpu(machine):
    scan = scan_nvidia(machine.root)
    assert (scan.gpus, scan.notes) == ((), ())


def test_a_driver_without_gpus_is_not_a_failure(machine):
    machine.nvidia_smi('echo "No devices were found"; exit 6')
    scan = scan_nvidia(machine.root)
    assert (scan.gpus, scan.notes) == ((), ())


def test_under_wsl_the_tool_of_the_host_is_used(machine):
    tool = machine.nvidia_rows(ONE)
    wsl = machine.root / "usr/lib/wsl/lib/nvidia-smi"
    wsl.parent.mkdir(parents=True)
    tool.rename(wsl)
    assert [gpu.name for gpu in scan_nvidia(machine.root).gpus] == ["NVIDIA H200"]


def test_a_failing_tool_is_reported_in_its_own_words(machine):
    tool = machine.nvidia_smi(
        'echo "NVIDIA-SMI has failed because it couldn\'t communicate with the NVIDIA driver."\n'
        'echo "Make sure that the latest NVIDIA driver is installed and running."; exit 9'
    )
    scan = scan_nvidia(machine.root)
    assert scan.gpus == ()
    (note,) = scan.notes
    assert note.vendor is Vendor.NVIDIA
    assert note.kind is NoteKind.TOOL_FAILED
    assert note.message == (
        f"{tool} failed with exit code 9: NVIDIA-SMI has failed because it couldn't communicate "
        "with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."
    )


def test_a_mismatched_driver_is_reported_from_either_stream(machine):
    machine.nvidia_smi(
        'echo "Failed to initialize NVML: Driver/library version mismatch" >&2; exit 18'
    )
    (note,) = scan_nvidia(machine.root).notes
    assert "exit code 18: Failed to initialize NVML" in note.message


def test_a_driver_too_old_for_the_query_is_reported(machine):
    machine.nvidia_smi("echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2")
    (note,) = scan_nvidia(machine.root).notes
    assert 'Field "compute_cap" is not a valid field' in note.message


def test_a_tool_that_fails_without_a_word_is_reported(machine):
    machine.nvidia_smi("exit 255")
    (note,) = scan_nvidia(machine.root).notes
    assert note.message.endswith("exit code 255: it gave no reason")


def test_a_tool_that_is_no_program_is_reported(machine):
    tool = machine.bin / "nvidia-smi"
    tool.write_bytes(b"\x7fELF not really")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    assert kinds(scan_nvidia(machine.root)) == [NoteKind.TOOL_FAILED]


def test_a_tool_that_hangs_is_left_at_the_time_limit(machine):
    machine.nvidia_smi("exec sleep 600")
    begin = time.monotonic()
    (note,) = scan_nvidia(machine.root, timeout_s=0.2).notes
    assert note.kind is NoteKind.TOOL_TIMEOUT
    assert "within 0.2 s" in note.message
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    "row",
    [
        "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
        "0, GPU-389a632d",
        "zero, GPU-1, NVIDIA H200, 9.0, 143771",
        "<html>, a, b, c, d",
    ],
)
def test_a_row_that_is_none_leaves_out_that_gpu_only(row):
    scan = parse_rows(f"{row}\n\n{ONE}")
    assert [gpu.name for gpu in scan.gpus] == ["NVIDIA H200"]
    (note,) = scan.notes
    assert note.kind is NoteKind.BAD_OUTPUT
    assert repr(row) in note.message


def test_facts_that_are_not_told_are_unknown():
    (gpu,) = parse_rows("0, [N/A], NVIDIA Something, New, [N/A], [N/A]\n").gpus
    assert gpu.name == "NVIDIA Something, New"
    assert (gpu.uuid, gpu.arch, gpu.compute_capability, gpu.vram_bytes) == (None,) * 4


def test_bytes_that_are_no_text_do_not_break_the_scan(machine):
    machine.nvidia_smi(r"printf '0, GPU-1, NVIDIA \377, 9.0, 10\n'")
    (gpu,) = scan_nvidia(machine.root).gpus
    assert gpu.name == "NVIDIA \N{REPLACEMENT CHARACTER}"
