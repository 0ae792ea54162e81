import pytest

from flodl_cli.libtorch import dependencies
from flodl_cli.libtorch.dependencies import missing_libraries


@pytest.fixture
def lib(tmp_path, fake_program):
    fake_program("ldconfig", 'echo "1 libs found"')
    folder = tmp_path / "site" / "torch" / "lib"
    folder.mkdir(parents=True)
    return folder


def test_libraries_beside_each_other_are_found(lib, elf):
    (lib / "libtorch.so").write_bytes(elf(needed=["libtorch_cpu.so", "libgomp-x.so"]))
    (lib / "libtorch_cpu.so").write_bytes(elf())
    assert missing_libraries(lib) == {"libgomp-x.so": ["libtorch.so"]}


def test_origin_leads_to_the_packages_beside_torch(lib, elf):
    (lib / "libtorch.so").write_bytes(
        elf(needed=["libcudart.so.x"], rpath="$ORIGIN/../../nvidia/lib")
    )
    assert missing_libraries(lib) == {"libcudart.so.x": ["libtorch.so"]}
    beside = lib.parents[1] / "nvidia" / "lib"
    beside.mkdir(parents=True)
    (beside / "libcudart.so.x").write_bytes(elf())
    assert missing_libraries(lib) == {}


def test_origin_of_a_linked_folder_leads_where_the_link_leads(lib, elf, tmp_path):
    (lib / "libtorch.so").write_bytes(
        elf(needed=["libcudart.so.x"], runpath="$ORIGIN/../../nvidia/lib")
    )
    beside = lib.parents[1] / "nvidia" / "lib"
    beside.mkdir(parents=True)
    (beside / "libcudart.so.x").write_bytes(elf())
    linked = tmp_path / "wheel" / "lib"
    linked.parent.mkdir()
    linked.symlink_to(lib)
    assert missing_libraries(linked) == {}


def test_rpath_is_inherited_and_runpath_is_not(lib, elf):
    beside = lib / "more"
    beside.mkdir()
    (beside / "liba.so").write_bytes(elf(needed=["libb.so.x"]))
    (beside / "libb.so.x").write_bytes(elf())
    (lib / "libtorch.so").write_bytes(elf(needed=["liba.so"], rpath="$ORIGIN/more"))
    assert missing_libraries(lib) == {}
    (lib / "libtorch.so").write_bytes(elf(needed=["liba.so"], runpath="$ORIGIN/more"))
    assert missing_libraries(lib) == {"libb.so.x": ["liba.so"]}


def test_cache_of_the_linker_is_asked(lib, elf, fake_program, tmp_path):
    (lib / "libtorch.so").write_bytes(elf(needed=["libquaint.so.9"]))
    (tmp_path / "libquaint.so.9").write_bytes(elf())
    line = f"\\tlibquaint.so.9 (libc6,x86-64) => {tmp_path}/libquaint.so.9"
    fake_program("ldconfig", f"printf '1 libs\\n{line}\\n'")
    assert missing_libraries(lib) == {}


def test_system_without_a_cache_has_its_usual_folders(lib, elf, monkeypatch, tmp_path):
    monkeypatch.setattr(dependencies.shutil, "which", lambda name: str(tmp_path / "none"))
    monkeypatch.setattr(dependencies, "_SYSTEM_FOLDERS", (str(tmp_path),))
    (lib / "libtorch.so").write_bytes(elf(needed=["libc-own.so"]))
    (tmp_path / "libc-own.so").write_bytes(elf())
    assert missing_libraries(lib) == {}


def test_circles_and_other_files_are_no_trouble(lib, elf):
    (lib / "libtorch.so").write_bytes(elf(needed=["libc10.so"]))
    (lib / "libc10.so").write_bytes(elf(needed=["libtorch.so", "libtorch_text.so"]))
    (lib / "libtorch_text.so").write_text("GROUP ( libx.so )")
    (lib / "libtorch_python.so").write_bytes(elf(needed=["libpython3.so"]))
    assert missing_libraries(lib) == {}
