import shutil
import sys

import pytest

from flodl_cli.host.platform import this_platform
from flodl_cli.libtorch.trial import trials
from flodl_cli.libtorch.verify import Status, load_check, static_checks
from flodl_cli.libtorch.wheel import find_wheel, link


def test_no_compiler_is_said(add_variant, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = trials(add_variant("precompiled/cpu"), {}, gpu=False)
    assert check.status == Status.FAIL
    assert check.message.startswith("no C++ compiler on PATH")


def test_compilers_error_is_quoted(add_variant, fake_program, monkeypatch):
    compiler = fake_program("c++", "echo 'a.cpp:1: error: no torch.h' >&2; exit 1")
    check, *_ = trials(add_variant("precompiled/cpu"), {"CXX": str(compiler)}, gpu=True)
    assert (check.name, check.message) == ("gpu", "c++ ended with 1: a.cpp:1: error: no torch.h")


def test_wrong_answer_fails(add_variant, fake_program):
    build = 'while [ "$1" != -o ]; do shift; done; printf "#!/bin/sh\\necho sum 9" > "$2"'
    compiler = fake_program("c++", f'{build}; chmod +x "$2"')
    check, *_ = trials(add_variant("precompiled/cpu"), {"CXX": str(compiler)}, gpu=True)
    assert check.message == "the program printed 'sum 9', not 'sum 10'"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
def test_programs_are_built_and_run_against_the_wheel_of_this_environment(store):
    found = find_wheel(sys.executable)
    assert found is not None
    variant = link(store, found, this_platform())
    assert all(check.status != Status.FAIL for check in static_checks(variant, this_platform()))
    assert load_check(variant, this_platform()).status == Status.OK
    checks = trials(variant, {}, gpu=False)
    names = ["compile", "cmake"] if shutil.which("cmake") else ["compile"]
    assert [(check.name, check.status) for check in checks] == [(n, Status.OK) for n in names]
