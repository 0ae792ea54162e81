"""Whether this machine can compile the native part."""

import pytest

from flodl_sys.toolchain import find_toolchain


@pytest.fixture
def machine(tmp_path):
    """A PATH and an include folder to fill."""

    class Machine:
        path = tmp_path / "bin"
        include = tmp_path / "include"

        def add(self, name, script="exit 0"):
            tool = self.path / name
            tool.write_text(f"#!/bin/sh\n{script}\n")
            tool.chmod(0o755)
            return str(tool)

        def find(self, **environ):
            return find_toolchain({"PATH": str(self.path), **environ}, self.include)

    made = Machine()
    made.path.mkdir()
    made.include.mkdir()
    (made.include / "Python.h").touch()
    return made


def test_the_first_of_the_usual_compilers_is_found(machine):
    machine.add("clang++")
    gcc = machine.add("g++")
    assert machine.find() == (gcc, None)


def test_no_compiler_names_those_that_were_looked_for(machine):
    assert machine.find() == (None, "no C++ compiler found (looked for c++, g++, clang++)")


def test_the_compiler_of_the_variable_is_the_only_one_looked_for(machine):
    machine.add("g++")
    mine = machine.add("mine")
    assert machine.find(CXX="mine -m64") == (mine, None)
    assert machine.find(CXX="gone") == (None, "no C++ compiler found (looked for CXX=gone)")


def test_a_compiler_that_cannot_even_tell_its_version_is_none(machine):
    machine.add("c++", "echo install the command line tools >&2; exit 1")
    gcc = machine.add("g++")
    assert machine.find() == (gcc, None)


def test_missing_python_headers_are_named(machine):
    gcc = machine.add("g++")
    (machine.include / "Python.h").unlink()
    missing = f"no Python headers found (looked for {machine.include}/Python.h)"
    assert machine.find() == (gcc, missing)
