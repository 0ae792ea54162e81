"""Operating system and processor, in the words of the libtorch catalog."""

from __future__ import annotations

import platform
import sys
from enum import StrEnum

from flodl_cli.errors import UnsupportedPlatformError


class Platform(StrEnum):
    """An operating system on a processor for which PyTorch publishes, or once published."""

    LINUX_X86_64 = "linux-x86_64"
    LINUX_AARCH64 = "linux-aarch64"
    MACOS_ARM64 = "macos-arm64"
    MACOS_X86_64 = "macos-x86_64"
    WINDOWS_X86_64 = "windows-x86_64"
    WINDOWS_ARM64 = "windows-arm64"

    @property
    def system(self) -> str:
        """``linux``, ``macos`` or ``windows``."""
        return self.value.partition("-")[0]


_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_PROCESSORS = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}


def this_platform() -> Platform:
    """The platform that fdl runs on.

    Raises:
        UnsupportedPlatformError: PyTorch knows none like it.
    """
    system = _SYSTEMS.get(sys.platform, sys.platform)
    machine = platform.machine().lower()
    processor = _PROCESSORS.get(machine, machine)
    if (system, processor) == ("linux", "arm64"):
        processor = "aarch64"
    try:
        return Platform(f"{system}-{processor}")
    except ValueError as error:
        known = ", ".join(Platform)
        raise UnsupportedPlatformError(
            f"libtorch is not published for {system}-{processor}; platforms: {known}",
            hint="build PyTorch from source, and register it: fdl libtorch link --prefix DIR",
        ) from error
