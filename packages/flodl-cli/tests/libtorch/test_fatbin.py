import pytest

from flodl_cli.libtorch.elf import NotElf
from flodl_cli.libtorch.fatbin import cuda_archs, rocm_archs

CODE, PTX = 2, 1


@pytest.fixture
def archs(tmp_path, elf, fatbin):
    def read(*entries):
        file = tmp_path / "libtorch_cuda.so"
        file.write_bytes(elf(fatbin=fatbin(*entries)))
        return cuda_archs(file)

    return read


def test_architectures_are_sorted_by_number(archs):
    assert archs((CODE, 120), (CODE, 75), (CODE, 90)) == ("7.5", "9.0", "12.0")


def test_architecture_of_a_few_kernels_does_not_count(archs):
    assert archs(*[(CODE, 80)] * 4, *[(CODE, 90)] * 2, (CODE, 89)) == ("8.0", "9.0")


def test_ptx_is_marked(archs):
    assert archs((CODE, 80), (CODE, 90), (PTX, 90)) == ("8.0", "9.0+PTX")


def test_library_without_gpu_code_has_none(tmp_path, elf):
    file = tmp_path / "a.so"
    file.write_bytes(elf())
    assert cuda_archs(file) == ()


def test_nonsense_in_the_section_ends(tmp_path, elf, fatbin):
    file = tmp_path / "a.so"
    file.write_bytes(elf(fatbin=fatbin((CODE, 80)) + b"\x50\xed\x55\xba" + b"\xff" * 60))
    assert cuda_archs(file) == ("8.0",)
    file.write_bytes(b"no library")
    with pytest.raises(NotElf):
        cuda_archs(file)


def test_rocm_targets_are_read_from_file_names(tmp_path):
    folder = tmp_path / "rocblas" / "library"
    folder.mkdir(parents=True)
    for name in ("TensileLibrary_gfx90a.co", "Kernels.so-000-gfx942.hsaco", "other.dat"):
        (folder / name).write_text("")
    assert rocm_archs(tmp_path) == ("gfx90a", "gfx942")
    assert rocm_archs(folder) == ()
