"""Wheels made for real, through uv, with and without a compiler and with a mistake in the C++."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from flodl_sys import names
from flodl_sys.toolchain import find_toolchain

PACKAGE = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def package(tmp_path):
    """A copy of the package's sources, to build and to break."""
    target = tmp_path / "flodl-sys"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    return target


def build(package, *, setting="", compiler=None, kinds=("--wheel",)):
    """Builds into ``dist`` and returns the exit code, the output and the wheels."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        pytest.skip("no uv to build with")
    environ = {**os.environ, names.SYS_NATIVE.name: setting}
    if compiler is not None:
        environ["CXX"] = compiler
    dist = package / "dist"
    done = subprocess.run(
        [uv, "build", *kinds, "--out-dir", dist, package],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr, sorted(dist.glob("*.whl"))


def has_core(wheel):
    return any(
        "_core." in name and ".pyi" not in name for name in zipfile.ZipFile(wheel).namelist()
    )


@pytest.fixture
def toolchain():
    found = find_toolchain()
    if found.missing is not None:
        pytest.skip(found.missing)


def test_without_a_compiler_the_wheel_is_pure_and_the_build_says_so(package):
    code, output, wheels = build(package, compiler="gone")
    assert (code, [wheel.name for wheel in wheels]) == (0, ["flodl_sys-0.1.0-py3-none-any.whl"])
    assert not has_core(wheels[0])
    line = (
        "flodl-sys: pure build, without native kernels: no C++ compiler found (looked for CXX=gone)"
    )
    assert output.count(line) == 1


def test_a_pure_build_on_purpose_says_so(package):
    code, output, wheels = build(package, setting="0")
    assert (code, [wheel.name for wheel in wheels]) == (0, ["flodl_sys-0.1.0-py3-none-any.whl"])
    assert "pure build, without native kernels: FLODL_SYS_NATIVE=0" in output


def test_a_native_build_that_was_demanded_fails_without_a_compiler(package):
    code, output, wheels = build(package, setting="1", compiler="gone")
    assert (code != 0, wheels) == (True, [])
    assert "FLODL_SYS_NATIVE=1 asks for the native part, but no C++ compiler found" in output


@pytest.mark.usefixtures("toolchain")
def test_a_mistake_in_the_sources_fails_and_never_ends_as_a_pure_build(package):
    (package / "cpp/module.cpp").write_text('#error "seeded"\n')
    code, output, wheels = build(package)
    assert (code != 0, wheels) == (True, [])
    assert "seeded" in output


@pytest.mark.usefixtures("toolchain")
def test_a_native_wheel_is_made_from_the_sdist_alone(package):
    code, output, wheels = build(package, setting="1", kinds=())
    assert code == 0, output
    assert [has_core(wheel) for wheel in wheels] == [True]
    assert "none-any" not in wheels[0].name
    assert (package / "dist/flodl_sys-0.1.0.tar.gz").is_file()
