"""What PyTorch publishes as libtorch: read from ``data/libtorch.json``, never hard-coded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from flodl_cli.errors import UnsupportedPlatformError, UsageError
from flodl_cli.host.platform import Platform

_LAST_CXX11_ABI_INFIX = (2, 7)
_FIRST_MACOS_ARM64 = (2, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """One family of builds: CPU only, or a CUDA or ROCm version.

    ``name`` is as the host spells it (``cu130``, ``rocm7.2``); ``archs`` is empty for the CPU.
    """

    name: str
    cuda: str | None = None
    rocm: str | None = None
    archs: tuple[str, ...] = ()

    @property
    def folder_name(self) -> str:
        """The name as a variant is called: ``rocm7.2`` becomes ``rocm72``."""
        return self.name.replace(".", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """One file that is published: its path below the base address, and what is known of it."""

    path: str
    size_bytes: int | None = None
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """The last part of the path, as a local file is called."""
        return self.path.rpartition("/")[2].replace("%2B", "+")


class Catalog:
    """The published builds for one platform.

    Args:
        data: The content of ``data/libtorch.json``.
        platform: Platform that the builds are for.
    """

    def __init__(self, data: Mapping[str, Any], platform: Platform) -> None:
        self._data = data
        self.platform = platform
        self.base: str = data["base"]
        self.default_version: str = data["default"]

    @property
    def versions(self) -> list[str]:
        """Versions with a build for this platform, newest first."""
        return [each for each in reversed(self._data["releases"]) if self._names(each)]

    def buckets(self, version: str) -> list[Bucket]:
        """The builds of ``version``: the CPU's first, then by CUDA and ROCm version.

        A patch version that the catalog does not know has the builds of its minor version.

        Raises:
            UsageError: The version is none, or too old, or newer than the catalog.
        """
        return [self._bucket(name, version) for name in self._names(self._row(version))]

    def bucket(self, name: str, version: str) -> Bucket | None:
        """The build ``name`` of ``version``, or ``None`` when it is not published."""
        return next((each for each in self.buckets(version) if each.name == name), None)

    def newest_with(self, name: str) -> str | None:
        """The newest version that has the build ``name`` for this platform."""
        return next((each for each in self.versions if name in self._names(each)), None)

    def backends(self, kind: str) -> list[str]:
        """Every CUDA or ROCm version (``kind`` is ``cuda`` or ``rocm``) that any version has."""
        names = {name for version in self.versions for name in self._names(version)}
        found = (self._data["buckets"][name].get(kind) for name in names)
        return sorted((each for each in found if each), key=version_key)

    def bucket_name(self, kind: str, backend: str) -> str:
        """The bucket of a CUDA or ROCm version, such as ``cu126`` for ``12.6``.

        Raises:
            UsageError: No version has it on this platform.
        """
        legal = self.backends(kind)
        if backend not in legal:
            self._refuse_vendor(kind)
            raise UsageError(
                f"--{kind} {backend}: there is no such build; versions: {', '.join(legal)}",
                hint="`fdl libtorch available` lists all builds for this platform",
            )
        return "cu" + backend.replace(".", "") if kind == "cuda" else f"rocm{backend}"

    def archive(self, bucket: str, version: str) -> Archive:
        """The published file of a build.

        Raises:
            UnsupportedPlatformError: There is none for this platform.
        """
        path = self._path(bucket, version)
        known = self._data["files"].get(path, {})
        return Archive(path=path, size_bytes=known.get("bytes"), sha256=known.get("sha256"))

    def bundles_cuda(self, version: str) -> bool:
        """Whether archives of ``version`` hold NVIDIA's libraries."""
        return version_key(version) < version_key(self._data["without_cuda_runtime_from"])

    def least_driver(self, cuda: str) -> str | None:
        """The oldest driver that runs programs for this CUDA version, if a limit is known."""
        limits = self._data["least_driver"].get(cuda.partition(".")[0], {})
        found: str | None = limits.get(self.platform.system)
        return found

    def torch_for_tch(self, tch: str) -> str | None:
        """The torch version that a version of the crate ``tch`` insists on, if it is known."""
        table: dict[str, str] = self._data["tch"]
        return table.get(tch) or table.get(".".join(tch.split(".")[:2]))

    def _row(self, version: str) -> str:
        wanted = version_key(version)
        rows = [each for each in self._data["releases"] if version_key(each)[:2] == wanted[:2]]
        if not rows or len(wanted) < 2:
            raise UsageError(
                f"version {version!r} is not in the catalog; versions: "
                f"{', '.join(self._data['releases'])}",
                hint="choose one of them, or register another build: "
                "fdl libtorch link --prefix DIR",
            )
        return str(rows[-1])

    def _names(self, version: str) -> list[str]:
        names: list[str] = self._data["releases"][version]
        match self.platform:
            case Platform.LINUX_X86_64:
                return names
            case Platform.WINDOWS_X86_64:
                return [name for name in names if not name.startswith("rocm")]
            case Platform.LINUX_AARCH64:
                return ["cpu"]
            case Platform.MACOS_ARM64 if version_key(version) >= _FIRST_MACOS_ARM64:
                return ["cpu"]
            case _:
                return []

    def _bucket(self, name: str, version: str) -> Bucket:
        row = self._data["buckets"][name]
        minor = ".".join(version.split(".")[:2])
        archs = row.get("archs_at", {}).get(minor, row.get("archs", ""))
        return Bucket(
            name=name, cuda=row.get("cuda"), rocm=row.get("rocm"), archs=tuple(archs.split())
        )

    def _path(self, bucket: str, version: str) -> str:
        match self.platform:
            case Platform.LINUX_X86_64:
                old = version_key(version)[:2] <= _LAST_CXX11_ABI_INFIX
                infix = "cxx11-abi-" if old else ""
                return f"{bucket}/libtorch-{infix}shared-with-deps-{version}%2B{bucket}.zip"
            case Platform.WINDOWS_X86_64:
                return f"{bucket}/libtorch-win-shared-with-deps-{version}%2B{bucket}.zip"
            case Platform.MACOS_ARM64:
                return f"cpu/libtorch-macos-arm64-{version}.zip"
            case _:
                raise self.no_archive()

    def no_archive(self) -> UnsupportedPlatformError:
        """The error for a platform that no archive is published for."""
        reason, way_out = _NO_ARCHIVE[self.platform]
        return UnsupportedPlatformError(reason, hint=way_out)

    def _refuse_vendor(self, kind: str) -> None:
        if kind == "cuda" and self.platform.system == "macos":
            raise UnsupportedPlatformError(
                "there is no CUDA on macOS", hint="leave --cuda out: the build uses the CPU"
            )
        if kind == "rocm" and self.platform != Platform.LINUX_X86_64:
            raise UnsupportedPlatformError(
                f"libtorch for ROCm is published for {Platform.LINUX_X86_64} only, "
                f"and this is {self.platform}",
                hint="leave --rocm out",
            )


_NO_ARCHIVE = {
    Platform.LINUX_AARCH64: (
        "PyTorch publishes no libtorch archive for Linux on ARM",
        "fdl takes it out of the torch wheel there: leave --mirror out",
    ),
    Platform.MACOS_X86_64: (
        "PyTorch ended builds for macOS on Intel with 2.2",
        "install torch 2.2 for Python, then: fdl libtorch link",
    ),
    Platform.WINDOWS_ARM64: (
        "PyTorch publishes no libtorch archive for Windows on ARM",
        "install torch for Python, then: fdl libtorch link",
    ),
}


def load_catalog(platform: Platform) -> Catalog:
    """The catalog that comes with fdl, for one platform."""
    return Catalog(_data(), platform)


def version_key(version: str) -> tuple[int, ...]:
    """A version in numbers, to compare by; the part after ``+`` does not count."""
    parts = version.partition("+")[0].split(".")
    return tuple(int(part) for part in parts if part.isdecimal())


@cache
def _data() -> dict[str, Any]:
    text = (files("flodl_cli") / "data" / "libtorch.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data
