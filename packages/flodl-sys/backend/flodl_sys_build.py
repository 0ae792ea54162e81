"""Build backend: scikit-build-core, with the choice between a native and a pure build.

FLODL_SYS_NATIVE unset   native if a C++ compiler and Python's headers are there, else pure
FLODL_SYS_NATIVE=1       native; anything that prevents it is an error
FLODL_SYS_NATIVE=0       pure

A native build that fails is an error in every case: a mistake in the C++ code never ends as a pure
build.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from scikit_build_core import build as scikit

from flodl_sys import names
from flodl_sys.errors import SysError
from flodl_sys.toolchain import find_toolchain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Settings = Mapping[str, "str | list[str]"] | None

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

build_sdist = scikit.build_sdist
get_requires_for_build_sdist = scikit.get_requires_for_build_sdist


class BuildChoiceError(SysError):
    """The build that FLODL_SYS_NATIVE asks for is not possible."""


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Returns what a build needs besides the static requirements: CMake and Ninja, if native."""
    return scikit.get_requires_for_build_wheel(_chosen(config_settings))


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Returns what an editable build needs besides the static requirements."""
    return scikit.get_requires_for_build_editable(_chosen(config_settings))


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """Writes the metadata of the wheel that `build_wheel` would make."""
    return scikit.prepare_metadata_for_build_wheel(metadata_directory, _chosen(config_settings))


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """Writes the metadata of the wheel that `build_editable` would make."""
    return scikit.prepare_metadata_for_build_editable(metadata_directory, _chosen(config_settings))


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds a platform wheel, or a ``py3-none-any`` one without the native part."""
    return _build(scikit.build_wheel, wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds a wheel that points to the sources; the native part, if any, lies in the wheel."""
    return _build(scikit.build_editable, wheel_directory, config_settings, metadata_directory)


def _build(
    build: Callable[..., str], wheel_directory: str, settings: Settings, metadata: str | None
) -> str:
    missing = _why_pure()
    if missing is not None:
        sys.stdout.write(f"flodl-sys: pure build, without native kernels: {missing}\n")
        sys.stdout.flush()
    return build(wheel_directory, _chosen(settings), metadata)


def _chosen(settings: Settings) -> dict[str, str | list[str]]:
    cmake = {} if _why_pure() is None else {"wheel.cmake": "false"}
    return {**(settings or {}), **cmake}


@functools.cache
def _why_pure() -> str | None:
    """Returns why the build is to be pure, or ``None`` for a native one."""
    asked = names.SYS_NATIVE.get()
    if asked not in {None, "0", "1"}:
        raise BuildChoiceError(
            f"{names.SYS_NATIVE.name}={asked}; it can be 1 (native), 0 (pure) or unset (choose)"
        )
    if asked == "0":
        return f"{names.SYS_NATIVE.name}=0"
    missing = find_toolchain().missing
    if missing is not None and asked == "1":
        raise BuildChoiceError(
            f"{names.SYS_NATIVE.name}=1 asks for the native part, but {missing}",
            hint="install what is missing, or unset the variable to get the pure build",
        )
    return missing
