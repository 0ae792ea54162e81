"""Compiles a small program against a libtorch and runs it: the proof that all of it fits."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from flodl_cli.errors import LaunchError
from flodl_cli.host.process import ask
from flodl_cli.libtorch.compiler import cmake_text, compile_flags, link_flags
from flodl_cli.libtorch.store import Variant
from flodl_cli.libtorch.verify import Check, Status

_COMPILERS = ("c++", "g++", "clang++")
_LIMIT_S = 900.0
_EXPECTED = "sum 10"
_PROGRAM = """\
#include <torch/torch.h>
#include <iostream>

int main() {
  auto device = torch::Device(torch::DEVICE);
  auto sum = torch::arange(5, torch::device(device)).sum().item<int>();
  std::cout << "sum " << sum << std::endl;
  return 0;
}
"""
_CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(trial LANGUAGES CXX)
include(libtorch.cmake)
add_executable(trial trial.cpp)
target_link_libraries(trial PRIVATE libtorch::libtorch)
"""


def trials(variant: Variant, environ: Mapping[str, str], *, gpu: bool) -> list[Check]:
    """Build and run the program with the printed flags, and with CMake where it is installed."""
    found = (environ.get("CXX"), *(shutil.which(name) for name in _COMPILERS))
    compiler = next((each for each in found if each), None)
    if compiler is None:
        return [
            Check(
                "compile",
                Status.FAIL,
                f"no C++ compiler on PATH: {', '.join(_COMPILERS)}",
                "install g++ or clang",
            )
        ]
    with tempfile.TemporaryDirectory() as folder:
        return list(_trials(variant, compiler, Path(folder), gpu=gpu))


def _trials(variant: Variant, compiler: str, folder: Path, *, gpu: bool) -> Iterator[Check]:
    source = folder / "trial.cpp"
    device = "kCUDA" if gpu else "kCPU"
    source.write_text(_PROGRAM.replace("DEVICE", device), encoding="utf-8")
    flags = [*compile_flags(variant), str(source), "-o", str(folder / "trial")]
    steps = [[compiler, *flags, *link_flags(variant)], [str(folder / "trial")]]
    yield _run("gpu" if gpu else "compile", steps, folder)
    cmake = shutil.which("cmake")
    if cmake is None or gpu:
        return
    (folder / "libtorch.cmake").write_text(cmake_text(variant), encoding="utf-8")
    (folder / "CMakeLists.txt").write_text(_CMAKE, encoding="utf-8")
    build = str(folder / "build")
    steps = [
        [cmake, "-S", str(folder), "-B", build, f"-DCMAKE_CXX_COMPILER={compiler}"],
        [cmake, "--build", build],
        [str(folder / "build" / "trial")],
    ]
    yield _run("cmake", steps, folder)


def _run(name: str, steps: list[list[str]], folder: Path) -> Check:
    """Run the steps; the last one is the program, without any variable that could help it."""
    answer = None
    for step in steps:
        is_program = step is steps[-1]
        try:
            answer = ask(
                step,
                directory=str(folder),
                env={"PATH": ""} if is_program else None,
                limit_s=_LIMIT_S,
            )
        except LaunchError as error:
            return Check(name, Status.FAIL, error.message, "fdl libtorch verify, without --compile")
        if answer.code != 0:
            said = (answer.err.strip() or answer.out.strip()).splitlines()
            reason = next((line for line in said if "error" in line.lower()), (said or ["?"])[-1])
            return Check(
                name,
                Status.FAIL,
                f"{Path(step[0]).name} ended with {answer.code}: {reason}",
                "fdl libtorch repair",
            )
    assert answer is not None
    if answer.out.strip() != _EXPECTED:
        return Check(
            name, Status.FAIL, f"the program printed {answer.out.strip()!r}, not {_EXPECTED!r}"
        )
    return Check(name, Status.OK, "a program was built and gave the right answer")
