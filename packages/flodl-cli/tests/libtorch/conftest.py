"""Hand-made libraries and libtorch folders, as small as the readers allow."""

import struct
import zipfile
from pathlib import Path

import pytest

from flodl_cli.host.platform import Platform
from flodl_cli.libtorch.store import Store

MACHINES = {"x86_64": 0x3E, "aarch64": 0xB7}


def elf_bytes(
    *, machine="x86_64", needed=(), soname=None, rpath=None, runpath=None, symbols=(), fatbin=b""
):
    """A 64-bit ELF file with a dynamic section, and a GPU section when there is code for it."""
    strings = b"\0"
    entries = []
    for tag, texts in (
        (1, needed),
        (14, [soname] if soname else []),
        (15, [rpath] if rpath else []),
        (29, [runpath] if runpath else []),
    ):
        for text in texts:
            entries.append((tag, len(strings)))
            strings += text.encode() + b"\0"
    for symbol in symbols:
        strings += symbol.encode() + b"\0"
    names = b"\0.nv_fatbin\0.shstrtab\0"
    strings_at = 64 + 2 * 56
    dynamic_at = strings_at + len(strings)
    entries += [(5, strings_at), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    fatbin_at = dynamic_at + len(dynamic)
    names_at = fatbin_at + len(fatbin)
    sections_at = names_at + len(names)
    size = sections_at + 3 * 64
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, MACHINES[machine], 1, 0, 64, sections_at, 0, 64, 56, 2, 64, 3, 2
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    dynamic_head = struct.pack(
        "<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, 0, len(dynamic), len(dynamic), 8
    )
    null = bytes(64)
    code = struct.pack("<IIQQQQIIQQ", 1, 1, 2, fatbin_at, fatbin_at, len(fatbin), 0, 0, 8, 0)
    table = struct.pack("<IIQQQQIIQQ", 12, 3, 0, 0, names_at, len(names), 0, 0, 1, 0)
    if not fatbin:
        code = null
    return header + load + dynamic_head + strings + dynamic + fatbin + names + null + code + table


def fatbin_bytes(*entries):
    """One container for each (kind, arch), as compilers write them."""
    containers = b""
    for kind, arch in entries:
        payload = bytes(16)
        head = (
            struct.pack("<HHIQ", kind, 257, 64, len(payload)) + bytes(12) + struct.pack("<I", arch)
        )
        body = head + bytes(64 - len(head)) + payload
        containers += struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body + bytes(8)
    return containers


@pytest.fixture
def elf():
    return elf_bytes


@pytest.fixture
def fatbin():
    return fatbin_bytes


@pytest.fixture
def make_libtorch():
    """Write a small libtorch that all static checks accept."""

    def make(folder: Path, version="2.13.0+cpu", *, archs=(), machine="x86_64", needed=()):
        files = libtorch_files(version, archs=archs, machine=machine, needed=needed)
        for name, content in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return folder

    return make


def libtorch_files(version="2.13.0+cpu", *, archs=(), machine="x86_64", needed=()):
    files = {
        "lib/libtorch.so": elf_bytes(machine=machine),
        "lib/libtorch_cpu.so": elf_bytes(machine=machine, needed=needed),
        "lib/libc10.so": elf_bytes(machine=machine, symbols=["_ZNSt7__cxx1112basic_string"]),
        "include/torch/script.h": b"",
        "share/cmake/Torch/TorchConfig.cmake": b"set(CMAKE_CXX_STANDARD 17)",
        "build-version": version.encode() + b"\n",
    }
    if archs:
        code = fatbin_bytes(*((2, arch) for arch in archs))
        files["lib/libtorch_cuda.so"] = elf_bytes(machine=machine, fatbin=code)
        files["lib/libc10_cuda.so"] = elf_bytes(machine=machine)
    return files


@pytest.fixture
def make_zip(tmp_path):
    """A published archive: everything in a folder ``libtorch/``."""

    def make(version="2.13.0+cpu", *, drop=(), extra=None, **options):
        file = tmp_path / "published.zip"
        with zipfile.ZipFile(file, "w") as opened:
            for name, content in libtorch_files(version, **options).items():
                if name not in drop:
                    opened.writestr(f"libtorch/{name}", content)
            for name, content in (extra or {}).items():
                opened.writestr(name, content)
        return file.read_bytes()

    return make


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "libtorch")


@pytest.fixture
def platform():
    return Platform.LINUX_X86_64


@pytest.fixture
def add_variant(store, make_libtorch):
    """Put a variant into the store as a download would."""
    from flodl_cli.libtorch.metadata import Metadata, write_metadata

    def add(variant_id, version="2.13.0+cpu", *, archs=(), needed=(), **metadata):
        folder = store.root / variant_id
        make_libtorch(folder, version, archs=archs, needed=needed)
        plain, _, bucket = version.partition("+")
        known = {
            "torch": plain,
            "cuda": "none",
            "archs": "cpu",
            "source": "precompiled",
            "variant": bucket,
            "platform": "linux-x86_64",
            "abi": "1",
            "cxx": "17",
            "verified": "yes",
        }
        write_metadata(folder, Metadata(**{**known, **metadata}))
        return store.variant(variant_id)

    return add
