"""The choice between a native and a pure build, with the build tool itself replaced by a recorder.

``test_real_builds.py`` makes the wheels.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from flodl_sys.toolchain import Toolchain

BACKEND = Path(__file__).parents[2] / "backend/flodl_sys_build.py"
COMPLETE = Toolchain("/usr/bin/g++", None)
LACKING = Toolchain(None, "no C++ compiler found (looked for c++, g++, clang++)")
HOOKS = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


@pytest.fixture
def backend(monkeypatch):
    """Loads the backend for a toolchain and a value of FLODL_SYS_NATIVE."""

    def load(toolchain, setting=""):
        scikit = ModuleType("scikit_build_core.build")
        for hook in HOOKS:
            setattr(scikit, hook, lambda *arguments, hook=hook: (hook, *arguments))
        package = ModuleType("scikit_build_core")
        package.build = scikit
        monkeypatch.setitem(sys.modules, "scikit_build_core", package)
        monkeypatch.setitem(sys.modules, "scikit_build_core.build", scikit)
        monkeypatch.setenv("FLODL_SYS_NATIVE", setting)
        spec = importlib.util.spec_from_file_location("flodl_sys_build", BACKEND)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "find_toolchain", lambda: toolchain)
        return module

    return load


def test_every_hook_of_the_build_tool_is_offered(backend):
    assert backend(COMPLETE).__all__ == HOOKS


@pytest.mark.parametrize("setting", ["", "1"])
def test_with_a_toolchain_the_build_is_native_without_a_word(backend, capsys, setting):
    made = backend(COMPLETE, setting)
    assert made.build_wheel("out", {"x": "1"}) == ("build_wheel", "out", {"x": "1"}, None)
    assert made.build_editable("out") == ("build_editable", "out", {}, None)
    assert made.get_requires_for_build_wheel() == ("get_requires_for_build_wheel", {})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("toolchain", "setting", "reason"),
    [(LACKING, "", LACKING.missing), (COMPLETE, "0", "FLODL_SYS_NATIVE=0")],
)
def test_a_pure_build_runs_no_cmake_and_prints_one_line_with_its_reason(
    backend, capsys, toolchain, setting, reason
):
    made = backend(toolchain, setting)
    pure = {"x": "1", "wheel.cmake": "false"}
    assert made.build_wheel("out", {"x": "1"}, "meta") == ("build_wheel", "out", pure, "meta")
    line = f"flodl-sys: pure build, without native kernels: {reason}\n"
    assert capsys.readouterr().out == line
    assert made.build_editable("out", {"x": "1"}) == ("build_editable", "out", pure, None)
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_a_pure_build_asks_for_no_cmake_and_ninja(backend, kind):
    made = backend(LACKING)
    for hook in (f"get_requires_for_build_{kind}", f"prepare_metadata_for_build_{kind}"):
        arguments = ["meta"] if hook.startswith("prepare") else []
        assert getattr(made, hook)(*arguments) == (hook, *arguments, {"wheel.cmake": "false"})


def test_a_native_build_that_was_demanded_but_cannot_be_is_an_error(backend):
    made = backend(LACKING, "1")
    for hook in (made.get_requires_for_build_wheel, lambda: made.build_wheel("out")):
        with pytest.raises(made.BuildChoiceError, match="=1 asks for the native part, but no C"):
            hook()


def test_an_unknown_setting_is_an_error(backend):
    made = backend(COMPLETE, "yes")
    with pytest.raises(made.BuildChoiceError, match="FLODL_SYS_NATIVE=yes; it can be 1"):
        made.build_wheel("out")
