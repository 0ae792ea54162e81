"""Loading the compiled module, and what is said when it is not there."""

import importlib
import json
import subprocess
import sys

import pytest

import flodl_sys.__main__ as command
from flodl_sys import kernels, native
from flodl_sys.errors import NativeUnavailableError
from flodl_sys.toolchain import Toolchain

COMPLETE = Toolchain("/usr/bin/g++", None)
LACKING = Toolchain(None, "no C++ compiler found (looked for c++, g++, clang++)")


@pytest.fixture
def pure(monkeypatch):
    """A build without the compiled module, on a machine whose toolchain the test chooses."""

    def make(toolchain=COMPLETE, setting=""):
        error = ModuleNotFoundError("No module named 'flodl_sys._core'", name="flodl_sys._core")
        monkeypatch.setattr(importlib, "import_module", _raiser(error))
        monkeypatch.setattr(native, "find_toolchain", lambda: toolchain)
        monkeypatch.setenv("FLODL_SYS_NATIVE", setting)

    return make


def _raiser(error):
    def import_module(name):
        raise error

    return import_module


@pytest.mark.parametrize(
    ("toolchain", "setting", "reason", "hint", "can_upgrade"),
    [
        (LACKING, "", "no C++ compiler found", "apt-get install g++ python3-dev", False),
        (COMPLETE, "", "it was left out, or no C++ toolchain", "/usr/bin/g++ is here now", True),
        (COMPLETE, "0", "FLODL_SYS_NATIVE=0 leaves it out", "unset FLODL_SYS_NATIVE", False),
    ],
)
def test_a_pure_build_says_why_and_how_to_get_a_native_one(
    pure, toolchain, setting, reason, hint, can_upgrade
):
    pure(toolchain, setting)
    found = native.status()
    assert (found.is_native, found.isa, found.can_upgrade) == (False, None, can_upgrade)
    assert reason in found.reason
    assert hint in found.hint


def test_a_kernel_of_a_pure_build_raises_that_reason(pure):
    pure(LACKING)
    with pytest.raises(NativeUnavailableError, match="without its native part: no C\\+\\+ comp"):
        kernels.easgd_blend(bytearray(4), bytearray(4), 0.5)


def test_a_module_that_does_not_load_is_not_taken_for_a_pure_build(monkeypatch):
    broken = ImportError("version `GLIBC_2.99' not found")
    monkeypatch.setattr(importlib, "import_module", _raiser(broken))
    found = native.status()
    assert found.reason == f"the native part of flodl-sys does not load: {broken}"
    assert not found.can_upgrade


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'cores'"):
        native.cores  # noqa: B018  reading it is the test


@pytest.mark.usefixtures("native")
def test_a_native_build_tells_its_instruction_set():
    found = native.status()
    assert found.is_native
    assert found.isa == kernels.supported_isas()[-1]
    assert found.reason is found.hint is None


def test_importing_the_package_loads_no_shared_object_and_nothing_heavy():
    code = (
        "import sys; before = set(sys.modules); import flodl_sys; "
        "print(sorted(set(sys.modules) - before - {'flodl_sys', 'importlib', 'typing'}))"
    )
    new = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for name in ("_core", "subprocess", "dataclasses", "ctypes", "numpy", "torch"):
        assert f"{name}'" not in new


def test_the_command_prints_the_build_as_text_and_as_json(pure, capsys):
    pure(LACKING)
    assert command.main([]) == 0
    first, why, cure = capsys.readouterr().out.splitlines()
    assert first.startswith("flodl-sys 0.1.0: pure build")
    assert why.startswith("why:  flodl-sys is installed without its native part: no C++ compiler")
    assert cure.startswith("cure: install a C++ compiler")
    assert command.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_native"] is False


def test_the_command_tells_scripts_whether_a_reinstall_would_help(pure, capsys):
    pure(COMPLETE)
    assert command.main(["--upgradable"]) == 0
    pure(LACKING)
    assert command.main(["--upgradable"]) == 1
    pure(COMPLETE, setting="0")
    assert command.main(["--upgradable"]) == 1


@pytest.mark.usefixtures("native")
def test_the_command_names_the_kernels_of_a_native_build(capsys):
    assert command.main(["--upgradable"]) == 1
    assert capsys.readouterr().out == (
        f"flodl-sys 0.1.0: native kernels ({kernels.supported_isas()[-1]})\n"
    )
