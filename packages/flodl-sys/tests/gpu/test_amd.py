"""KFD trees: a CPU alone, one and eight GPUs, and what explains a card that KFD does not list."""

import pytest

from flodl_sys.gpu.amd import gfx_name, scan_amd
from flodl_sys.gpu.model import GpuInfo, NoteKind, Vendor

CPU = {"cpu_cores_count": 64, "simd_count": 0, "gfx_target_version": 0, "unique_id": 0}
MI300X = {
    "cpu_cores_count": 0,
    "simd_count": 1216,
    "gfx_target_version": 90402,
    "vendor_id": 4098,
    "device_id": 29857,
    "unique_id": 14073402507705515123,
}
RX6800 = {"simd_count": 120, "gfx_target_version": 100300, "device_id": 29631, "unique_id": 0}
HBM = (1, 206141652992)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (90006, "gfx906"),
        (100300, "gfx1030"),
        (110001, "gfx1101"),
        (120001, "gfx1201"),
    ],
)
def test_target_versions_become_names(version, name):
    assert gfx_name(version) == name


def test_one_gpu_beside_the_cpu_has_all_its_facts(machine):
    machine.kfd_device()
    machine.kfd_node(0, CPU, banks=[(0, 2**38)], name="")
    machine.kfd_node(1, MI300X, banks=[HBM], name="ip discovery")
    scan = scan_amd(machine.root)
    assert scan.notes == ()
    assert scan.gpus == (
        GpuInfo(
            vendor=Vendor.AMD,
            index=0,
            name="AMD gfx942 (0x74a1)",
            uuid="GPU-c34ec50444e0fc73",
            arch="gfx942",
            vram_bytes=206141652992,
        ),
    )


def test_eight_gpus_keep_the_order_of_their_node_numbers(machine):
    machine.kfd_device()
    for number in range(2):
        machine.kfd_node(number, CPU)
    for number in range(2, 11):
        if number != 9:
            machine.kfd_node(number, {**MI300X, "unique_id": number}, banks=[HBM])
    scan = scan_amd(machine.root)
    assert [gpu.index for gpu in scan.gpus] == list(range(8))
    assert [gpu.uuid[-2:] for gpu in scan.gpus] == [f"{n:02x}" for n in (2, 3, 4, 5, 6, 7, 8, 10)]


def test_video_memory_of_both_heaps_counts_and_other_heaps_do_not(machine):
    machine.kfd_node(
        1, RX6800, name="sienna_cichlid", banks=[(1, 2**28), (2, 2**34), (0, 2**40), (5, 2**40)]
    )
    (gpu,) = scan_amd(machine.root).gpus
    assert gpu.vram_bytes == 2**28 + 2**34
    assert gpu.name == "AMD sienna_cichlid"


def test_facts_that_the_tree_does_not_have_are_unknown(machine):
    machine.kfd_node(1, {**RX6800, "gfx_target_version": 0})
    (gpu,) = scan_amd(machine.root).gpus
    assert gpu.name == "AMD GPU (0x73bf)"
    assert (gpu.uuid, gpu.arch, gpu.vram_bytes) == (None,) * 3


def test_no_tree_means_no_gpu(machine):
    assert scan_amd(machine.root) == scan_amd(machine.root / "nowhere")
    assert (scan_amd(machine.root).gpus, scan_amd(machine.root).notes) == ((), ())


def test_a_cpu_alone_is_no_gpu(machine):
    machine.kfd_device()
    machine.kfd_node(0, CPU)
    machine.drm_card(0, "0x8086")
    scan = scan_amd(machine.root)
    assert (scan.gpus, scan.notes) == ((), ())


def test_a_broken_node_is_left_out_with_a_note(machine):
    broken = machine.kfd_node(1, MI300X)
    (broken / "properties").write_text("simd_count many\n")
    machine.kfd_node(2, RX6800)
    scan = scan_amd(machine.root)
    assert [gpu.arch for gpu in scan.gpus] == ["gfx1030"]
    (note,) = scan.notes
    assert note.kind is NoteKind.BAD_OUTPUT
    assert str(broken) in note.message


def test_a_card_without_compute_support_is_explained(machine):
    machine.drm_card(0, "0x10de")
    machine.drm_card(1, "0x1002")
    (note,) = scan_amd(machine.root).notes
    assert note.kind is NoteKind.NO_KFD
    assert "(card1)" in note.message
    assert f"no {machine.root}/dev/kfd" in note.message


def test_a_card_that_this_user_may_not_use_is_explained(machine):
    machine.kfd_device()
    machine.kfd_node(1, MI300X, banks=[HBM])
    machine.drm_card(0, "0x1002")
    scan = scan_amd(machine.root, may_open=lambda device: False)
    assert len(scan.gpus) == 1
    (note,) = scan.notes
    assert note.kind is NoteKind.NO_PERMISSION
    assert "groups render and video" in note.message


def test_a_node_that_the_container_hides_is_no_gpu_and_no_fault(machine, monkeypatch):
    hidden = machine.kfd_node(1, MI300X)
    machine.kfd_node(2, RX6800)
    real = type(hidden).read_text

    def read_text(path, *args, **kwargs):
        if path == hidden / "properties":
            raise PermissionError(1, "Operation not permitted")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(type(hidden), "read_text", read_text)
    scan = scan_amd(machine.root)
    assert [(gpu.index, gpu.arch) for gpu in scan.gpus] == [(0, "gfx1030")]
    assert scan.notes == ()
