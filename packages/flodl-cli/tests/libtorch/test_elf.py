import sys

import pytest

from flodl_cli.libtorch.elf import NotElf, holds_name, read_shared_object, section


def test_dynamic_section_is_read(tmp_path, elf):
    file = tmp_path / "a.so"
    file.write_bytes(
        elf(
            needed=["liba.so.1", "libb.so"],
            soname="libx.so.2",
            rpath="$ORIGIN:/opt",
            machine="aarch64",
        )
    )
    read = read_shared_object(file)
    assert (read.machine, read.soname) == ("aarch64", "libx.so.2")
    assert read.needed == ("liba.so.1", "libb.so")
    assert (read.rpath, read.runpath) == (("$ORIGIN", "/opt"), ())


def test_names_of_symbols_are_searched(tmp_path, elf):
    file = tmp_path / "a.so"
    file.write_bytes(elf(symbols=["_ZNSt7__cxx1112basic_string"]))
    assert holds_name(file, b"NSt7__cxx11")
    assert not holds_name(file, b"NSt6other")


def test_section_is_found_by_name(tmp_path, elf):
    file = tmp_path / "a.so"
    file.write_bytes(elf(fatbin=b"12345678"))
    with section(file, b".nv_fatbin") as part:
        assert bytes(part) == b"12345678"
    with section(file, b".other") as part:
        assert part is None


@pytest.mark.parametrize("content", [b"", b"MZ", b"\x7fELF\x01\x01"])
def test_other_files_are_no_elf(tmp_path, content):
    file = tmp_path / "a.so"
    file.write_bytes(content)
    with pytest.raises(NotElf):
        read_shared_object(file)


@pytest.mark.parametrize("keep", [20, 64, 100, 170, 200])
def test_cut_file_is_an_error(tmp_path, elf, keep):
    file = tmp_path / "a.so"
    file.write_bytes(elf(needed=["liba.so"], soname="libx.so")[:keep])
    with pytest.raises(NotElf, match="cut short or damaged"):
        read_shared_object(file)


@pytest.mark.skipif(sys.platform != "linux", reason="reads a library of Linux")
def test_library_of_this_interpreter_is_read():
    import _ctypes

    assert any(name.startswith("libc.") for name in read_shared_object_of(_ctypes.__file__).needed)


def read_shared_object_of(name):
    from pathlib import Path

    return read_shared_object(Path(name))
