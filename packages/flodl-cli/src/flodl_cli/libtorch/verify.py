"""Checks an installed libtorch: files, architectures, ABI, dependencies, and whether it loads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from flodl_cli.errors import LaunchError
from flodl_cli.host.platform import Platform
from flodl_cli.host.process import ask
from flodl_cli.libtorch import examine
from flodl_cli.libtorch.dependencies import missing_libraries
from flodl_cli.libtorch.environment import loader_environment
from flodl_cli.libtorch.metadata import change_metadata
from flodl_cli.libtorch.store import Variant
from flodl_cli.libtorch.wheel import stale_reason
from flodl_cli.terminal import listed

_LOAD_LIMIT_S = 120.0
_DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_LOAD = "import ctypes, sys; [ctypes.CDLL(each, ctypes.RTLD_GLOBAL) for each in sys.argv[1:]]"


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; ``fix`` says what to do about one that is not ok."""

    name: str
    status: Status
    message: str
    fix: str = ""


def static_checks(variant: Variant, platform: Platform) -> list[Check]:
    """What can be said without running anything.

    An ``archs`` key that differs from the binaries is corrected in ``.arch``.
    """
    return [
        *_files(variant, platform),
        *_architectures(variant),
        _abi(variant),
        *_dependencies(variant, platform),
    ]


def load_check(variant: Variant, platform: Platform) -> Check:
    """Whether the libraries load, in a process of their own with nothing else around."""
    found = (examine.library(variant.lib, name) for name in ("c10", "torch_cpu", "torch"))
    files = [str(file) for file in found if file is not None]
    try:
        answer = ask(
            [sys.executable, "-I", "-c", _LOAD, *files],
            env=loader_environment(variant, platform, {}),
            limit_s=_LOAD_LIMIT_S,
        )
    except LaunchError as error:
        return Check("load", Status.FAIL, error.message, "run it again on an idle machine")
    if answer.code == 0:
        return Check("load", Status.OK, "the libraries load")
    ending = f"the loader ended with code {answer.code}"
    reason = (answer.err.strip().splitlines() or [ending])[-1]
    return Check("load", Status.FAIL, reason, "fdl libtorch repair")


def _files(variant: Variant, platform: Platform) -> Iterator[Check]:
    reinstall = "fdl libtorch download --force, or fdl libtorch link again"
    stale = stale_reason(variant)
    if stale is not None:
        yield Check("files", Status.FAIL, stale, "run `fdl libtorch link` again")
        return
    absent = [
        name for name in ("torch", "torch_cpu", "c10") if examine.library(variant.lib, name) is None
    ]
    if not (variant.prefix / "include").is_dir():
        absent.append("include")
    if absent:
        yield Check("files", Status.FAIL, f"not in {variant.prefix}: {listed(absent)}", reinstall)
        return
    config = variant.prefix / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    if not config.is_file():
        yield Check(
            "files",
            Status.WARN,
            "share/cmake/Torch/TorchConfig.cmake is not there: find_package(Torch) will fail",
            "use the file that `fdl libtorch cmake` writes",
        )
    built_for = examine.machine(variant.lib)
    wanted = platform.value.partition("-")[2]
    if platform.system == "linux" and built_for not in (None, wanted):
        yield Check("files", Status.FAIL, f"built for {built_for}, and this is {wanted}", reinstall)
        return
    yield Check("files", Status.OK, "libraries and headers are there")


def _architectures(variant: Variant) -> Iterator[Check]:
    metadata = variant.metadata
    if metadata.vendor == "cpu":
        return
    read = examine.gpu_archs(variant.lib)
    if not read:
        yield Check(
            "architectures",
            Status.WARN,
            f"cannot be read from the libraries; declared: {metadata.archs or 'none'}",
        )
        return
    if read == metadata.arch_tokens:
        yield Check("architectures", Status.OK, " ".join(read))
        return
    declared = metadata.archs
    change_metadata(variant.directory, archs=" ".join(read))
    yield Check(
        "architectures",
        Status.OK,
        f"{' '.join(read)}, from the libraries; {declared or 'nothing'} was declared and is "
        "corrected now",
    )


def _abi(variant: Variant) -> Check:
    abi = examine.cxx11_abi(variant.prefix)
    cxx = examine.cxx_standard(variant.prefix, variant.metadata.torch)
    return Check("abi", Status.OK, f"C++11 ABI {'on' if abi == '1' else 'off'}, C++{cxx}")


def _dependencies(variant: Variant, platform: Platform) -> Iterator[Check]:
    if platform.system != "linux":
        return
    missing = missing_libraries(variant.lib)
    driver = [name for name in missing if name in _DRIVER_LIBRARIES]
    others = [f"{name} (for {users[0]})" for name, users in missing.items() if name not in driver]
    if driver:
        yield Check(
            "dependencies",
            Status.WARN,
            f"no NVIDIA driver on this machine: {listed(driver)}",
            "fine for building; a GPU needs the driver",
        )
    if others:
        yield Check(
            "dependencies", Status.FAIL, f"not found: {listed(others)}", "fdl libtorch repair"
        )
    elif not driver:
        yield Check("dependencies", Status.OK, "all libraries are found")
