"""How a C++ compiler and CMake build against a libtorch without ``find_package(Torch)``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from flodl_cli.errors import BuildError, UsageError
from flodl_cli.libtorch.examine import library
from flodl_cli.libtorch.store import Variant

_ALWAYS = ("torch", "torch_cpu", "c10")
_GPU = (("torch_cuda", "c10_cuda"), ("torch_hip", "c10_hip"))


def include_folders(variant: Variant) -> list[Path]:
    """Both roots of the headers."""
    include = variant.prefix / "include"
    return [include, include / "torch" / "csrc" / "api" / "include"]


def libraries(variant: Variant) -> list[str]:
    """Names of the libraries to link, those for GPUs only where the variant has them."""
    names = list(_ALWAYS)
    for group in _GPU:
        names += [name for name in group if library(variant.lib, name) is not None]
    return names


def compile_flags(variant: Variant) -> list[str]:
    """What the compiler needs."""
    flags = [f"-I{folder}" for folder in include_folders(variant)]
    flags.append(f"-std=c++{variant.metadata.cxx or '17'}")
    if variant.metadata.abi == "0":
        flags.append("-D_GLIBCXX_USE_CXX11_ABI=0")
    return flags


def link_flags(variant: Variant) -> list[str]:
    """What the linker needs.

    The GPU's libraries register themselves when loaded and offer no name that a program asks
    for: without ``--no-as-needed`` the linker drops them, and CUDA seems absent.
    """
    names = [f"-l{name}" for name in libraries(variant)]
    return [f"-L{variant.lib}", "-Wl,--no-as-needed", *names, f"-Wl,-rpath,{variant.lib}"]


def flags_line(variant: Variant, *, cflags: bool, libs: bool) -> str:
    """The flags as one line for a shell; neither asked for means both."""
    both = cflags == libs
    words = compile_flags(variant) if cflags or both else []
    words += link_flags(variant) if libs or both else []
    return shlex.join(words)


def cmake_text(variant: Variant) -> str:
    """A CMake file that defines the target ``libtorch::libtorch``; it needs no CUDA toolkit."""
    includes = _cmake_list(include_folders(variant))
    files = [library(variant.lib, name) for name in libraries(variant)]
    absent = [name for name, file in zip(libraries(variant), files, strict=True) if file is None]
    if absent:
        raise BuildError(
            f"{variant.lib} lacks {', '.join(absent)}", hint="fdl libtorch verify says more"
        )
    paths = _cmake_list([file for file in files if file is not None])
    abi = variant.metadata.abi or "1"
    return f"""\
# Written by `fdl libtorch cmake` for {variant.id} (torch {variant.metadata.torch}).
# Use: include(this file), then target_link_libraries(program PRIVATE libtorch::libtorch)
if(TARGET libtorch::libtorch)
  return()
endif()
add_library(libtorch::libtorch INTERFACE IMPORTED)
target_include_directories(libtorch::libtorch SYSTEM INTERFACE
{includes})
target_compile_features(libtorch::libtorch INTERFACE cxx_std_{variant.metadata.cxx or "17"})
target_link_libraries(libtorch::libtorch INTERFACE
{_no_as_needed()}{paths})
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_compile_definitions(libtorch::libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI={abi})
endif()
if(NOT WIN32)
  target_link_options(libtorch::libtorch INTERFACE "LINKER:-rpath,{_cmake_path(variant.lib)}")
endif()
"""


def find_package_snippet(variant: Variant) -> str:
    """The usual way, for those who have the CUDA toolkit or a CPU build."""
    return f"""\
list(APPEND CMAKE_PREFIX_PATH "{_cmake_path(variant.prefix)}")
find_package(Torch REQUIRED)
target_link_libraries(program PRIVATE ${{TORCH_LIBRARIES}})
set_property(TARGET program PROPERTY CXX_STANDARD {variant.metadata.cxx or "17"})
"""


def refuse_windows_flags(system: str) -> None:
    """Stop a call for flags of a compiler that does not take them.

    Raises:
        UsageError: ``system`` is Windows.
    """
    if system == "windows":
        raise UsageError(
            "the flags are those of g++ and clang, which Windows builds of libtorch do not fit",
            hint="use CMake there: fdl libtorch cmake",
        )


def _no_as_needed() -> str:
    return '  "$<$<PLATFORM_ID:Linux>:-Wl,--no-as-needed>"\n'


def _cmake_list(paths: Sequence[Path]) -> str:
    return "\n".join(f'  "{_cmake_path(path)}"' for path in paths)


def _cmake_path(path: Path) -> str:
    return path.as_posix().replace('"', '\\"').replace("$", "\\$")
