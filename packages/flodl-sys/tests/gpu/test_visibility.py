"""The visibility variables, applied to a scan."""

import pytest

from flodl_sys.gpu.model import GpuInfo, GpuScan, NoteKind, Vendor
from flodl_sys.gpu.visibility import visible_gpus


def gpu(vendor, index, uuid):
    return GpuInfo(vendor=vendor, index=index, name=f"{vendor} {index}", uuid=uuid)


NVIDIA = tuple(gpu(Vendor.NVIDIA, i, f"GPU-{i}aaa-bbb") for i in range(4))
AMD = tuple(gpu(Vendor.AMD, i, f"GPU-{i}ccc") for i in range(3))


def seen(gpus, **masks):
    scan = visible_gpus(GpuScan(gpus), masks)
    return [gpu.index for gpu in scan.gpus], [note.kind for note in scan.notes]


@pytest.mark.parametrize(
    ("mask", "indices"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("3, 1", [3, 1]),
        ("GPU-2aaa-bbb,GPU-0", [2, 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,-1,3", [2]),
        ("MIG-GPU-1aaa-bbb/3/0", [1]),
    ],
)
def test_a_mask_of_cuda_selects_and_orders(mask, indices):
    assert seen(NVIDIA, CUDA_VISIBLE_DEVICES=mask) == (indices, [])


def test_without_masks_all_are_seen():
    assert seen(NVIDIA + AMD) == ([0, 1, 2, 3, 0, 1, 2], [])


@pytest.mark.parametrize("mask", ["0,7,1", "0,GPU-x,1", "0,gpu zero,1", "0,GPU-,1", "0,MIG-77,1"])
def test_the_first_entry_that_names_nothing_ends_the_list_with_a_note(mask):
    assert seen(NVIDIA, CUDA_VISIBLE_DEVICES=mask) == ([0], [NoteKind.BAD_MASK])


def test_the_note_quotes_the_mask_and_the_legal_indices():
    (note,) = visible_gpus(GpuScan(NVIDIA), {"CUDA_VISIBLE_DEVICES": "0,7"}).notes
    assert note.message.startswith(
        "CUDA_VISIBLE_DEVICES=0,7: '7' names none of the 4 GPUs (indices 0 to 3)"
    )


def test_a_slice_counts_as_its_gpu_where_there_is_only_one():
    assert seen(NVIDIA[:1], CUDA_VISIBLE_DEVICES="MIG-2f5f60d8-c9aa") == ([0], [])


def test_hip_reads_its_own_variable_before_cudas():
    assert seen(AMD, HIP_VISIBLE_DEVICES="2", CUDA_VISIBLE_DEVICES="0") == ([2], [])
    assert seen(AMD, CUDA_VISIBLE_DEVICES="0") == ([0], [])
    assert seen(NVIDIA, HIP_VISIBLE_DEVICES="2") == ([0, 1, 2, 3], [])


def test_indices_of_hip_count_within_what_the_runtime_below_shows():
    assert seen(AMD, ROCR_VISIBLE_DEVICES="2,1", HIP_VISIBLE_DEVICES="1") == ([1], [])


def test_a_mask_on_a_machine_without_gpus_is_no_fault():
    assert seen((), CUDA_VISIBLE_DEVICES="0") == ([], [])
