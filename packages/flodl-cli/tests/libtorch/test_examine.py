import pytest

from flodl_cli.libtorch.examine import (
    cxx11_abi,
    cxx_standard,
    facts,
    gpu_archs,
    machine,
    torch_version,
)

VERSION_PY = """
from typing import Optional
__version__ = '2.15.0+cu132'
cuda: Optional[str] = '13.2'
hip: Optional[str] = None
"""


def test_version_of_a_wheel_is_read_without_running_it(tmp_path):
    (tmp_path / "version.py").write_text(VERSION_PY + "raise SystemExit\n")
    version = torch_version(tmp_path)
    assert (version.version, version.cuda, version.rocm) == ("2.15.0", "13.2", None)
    assert version.bucket == "cu132"


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("2.13.0+cpu", "cpu"),
        ("2.13.0+cu130", "cu130"),
        ("2.10.0+rocm7.1", "rocm71"),
        ("2.2.0", "cpu"),
    ],
)
def test_version_of_an_archive(tmp_path, text, bucket):
    (tmp_path / "build-version").write_text(text + "\n")
    version = torch_version(tmp_path)
    assert (version.version, version.bucket) == (text.partition("+")[0], bucket)


def test_version_of_a_system_package(tmp_path, elf):
    config = tmp_path / "share/cmake/Torch/TorchConfigVersion.cmake"
    config.parent.mkdir(parents=True)
    config.write_text('set(PACKAGE_VERSION "2.9.1")')
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libtorch_cuda.so").write_bytes(elf(needed=["libcudart.so.12"]))
    version = torch_version(tmp_path)
    assert (version.version, version.cuda, version.bucket) == ("2.9.1", "12", "cu12")


@pytest.mark.parametrize("text", ["def (", "x = 1"])
def test_nothing_tells_the_version(tmp_path, text):
    (tmp_path / "version.py").write_text(text)
    assert torch_version(tmp_path) is None


def test_abi_comes_from_cmake_else_from_symbols(tmp_path, elf):
    (tmp_path / "lib").mkdir()
    assert cxx11_abi(tmp_path) == "1"
    (tmp_path / "lib/libc10.so").write_bytes(elf(symbols=["_ZN3c105ErrorC1ESs"]))
    assert cxx11_abi(tmp_path) == "0"
    config = tmp_path / "share/cmake/Torch/TorchConfig.cmake"
    config.parent.mkdir(parents=True)
    config.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")')
    assert cxx11_abi(tmp_path) == "1"


@pytest.mark.parametrize(
    ("config", "version", "expected"),
    [
        ("CXX_STANDARD 17", "2.14.0", "17"),
        ("target_compile_features(torch INTERFACE cxx_std_20)", "2.9.0", "20"),
        ("", "2.13.0", "17"),
        ("", "2.14.0", "20"),
    ],
)
def test_standard_comes_from_cmake_else_from_the_version(tmp_path, config, version, expected):
    file = tmp_path / "share/cmake/Torch/TorchConfig.cmake"
    file.parent.mkdir(parents=True)
    file.write_text(config)
    assert cxx_standard(tmp_path, version) == expected


def test_facts_of_a_gpu_build(tmp_path, make_libtorch):
    make_libtorch(tmp_path, "2.13.0+cu130", archs=(75, 90))
    assert facts(tmp_path) == {
        "abi": "1",
        "cxx": "17",
        "archs": "7.5 9.0",
        "torch": "2.13.0",
        "cuda": "13.0",
        "rocm": "",
    }


def test_facts_of_a_cpu_build(tmp_path, make_libtorch):
    found = facts(make_libtorch(tmp_path))
    assert (found["archs"], found["cuda"]) == ("cpu", "none")


def test_machine_and_damaged_libraries(tmp_path, make_libtorch):
    make_libtorch(tmp_path, machine="aarch64")
    assert machine(tmp_path / "lib") == "aarch64"
    (tmp_path / "lib/libtorch_cpu.so").write_text("x")
    (tmp_path / "lib/libtorch_cuda.so").write_text("x")
    assert machine(tmp_path / "lib") is None
    assert gpu_archs(tmp_path / "lib") == ()
