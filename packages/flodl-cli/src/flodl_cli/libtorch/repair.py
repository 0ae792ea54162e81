"""Completes a libtorch: links under the names that are asked for, and NVIDIA's libraries."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from flodl_cli.errors import LibtorchError
from flodl_cli.host.packages import PackageClient, Pin, package_client
from flodl_cli.host.process import ask
from flodl_cli.libtorch.dependencies import missing_libraries
from flodl_cli.libtorch.elf import NotElf, read_shared_object
from flodl_cli.libtorch.metadata import Metadata
from flodl_cli.terminal import listed

_NVIDIA_FOLDER = "nvidia"
_DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


def repair(
    prefix: Path,
    metadata: Metadata,
    *,
    with_packages: bool,
    jobs: int | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> list[str]:
    """Make what can be made right in ``prefix``; return what was done, in sentences.

    Args:
        prefix: Folder with ``lib``; it belongs to fdl.
        metadata: What it is.
        with_packages: Whether NVIDIA's libraries may be fetched.
        jobs: How many of them at a time; the package client's choice when ``None``.
        tell: Called before something that takes long.

    Raises:
        FdlError: The packages cannot be fetched.
        LibtorchError: They do not bring what is missing.
    """
    if metadata.platform.startswith("macos"):
        return _repair_macos(prefix)
    done = _link_sonames(prefix / "lib")
    if metadata.vendor != "nvidia" or not with_packages:
        return done
    if not _missing_from_packages(prefix / "lib"):
        return done
    tell(f"fetching the NVIDIA libraries that torch {metadata.torch} was built with")
    client = package_client(jobs)
    if client.ignores_jobs:
        tell(f"pip fetches one package at a time, whatever --jobs {jobs} asks for; uv fetches more")
    done.append(_add_nvidia(client, prefix, metadata))
    return done


def _link_sonames(lib: Path) -> list[str]:
    """Links under the name that a library gives itself, for files that are called otherwise."""
    done = []
    for file in sorted(lib.glob("*.so*")):
        try:
            soname = read_shared_object(file).soname
        except (OSError, NotElf):
            continue
        if soname and "/" not in soname and not (lib / soname).exists():
            (lib / soname).symlink_to(file.name)
            done.append(f"linked {soname} to {file.name}")
    for name in missing_libraries(lib):
        hashed = _hashed_twin(lib, name)
        if hashed is not None:
            (lib / name).symlink_to(hashed.name)
            done.append(f"linked {name} to {hashed.name}")
    return done


def _hashed_twin(lib: Path, name: str) -> Path | None:
    """``libcudart-9335f6a2.so.12`` for ``libcudart.so.12``."""
    stem, _, version = name.partition(".so")
    twins = sorted(lib.glob(f"{stem}-*.so{version}"))
    return twins[0] if len(twins) == 1 else None


def _missing_from_packages(lib: Path) -> list[str]:
    """What is missing and no driver brings."""
    return [name for name in missing_libraries(lib) if name not in _DRIVER_LIBRARIES]


def _add_nvidia(client: PackageClient, prefix: Path, metadata: Metadata) -> str:
    backend = metadata.variant
    with tempfile.TemporaryDirectory() as workspace:
        pins = client.resolve(f"torch=={metadata.torch}", backend, Path(workspace))
        chosen = [pin for pin in pins if pin.name.startswith("nvidia-")]
        if not chosen:
            raise LibtorchError(
                f"torch {metadata.torch} for {backend} asks for no NVIDIA packages",
                hint="install the CUDA toolkit, or take another build",
            )
        client.install(chosen, prefix / _NVIDIA_FOLDER, backend, Path(workspace))
    _link_nvidia(prefix)
    left = _missing_from_packages(prefix / "lib")
    if left:
        raise LibtorchError(
            f"still missing after fetching {_spell(chosen)}: {listed(left)}",
            hint="`fdl libtorch verify` shows which library needs them",
        )
    return f"added {_spell(chosen)}"


def _link_nvidia(prefix: Path) -> None:
    """Every library of the packages, since cuDNN loads its parts by name when it needs them."""
    lib = prefix / "lib"
    for file in sorted((prefix / _NVIDIA_FOLDER).rglob("*.so*")):
        target = lib / file.name
        if file.is_file() and not target.exists() and not target.is_symlink():
            target.symlink_to(Path("..") / file.relative_to(prefix))


def _spell(pins: list[Pin]) -> str:
    return listed(f"{pin.name} {pin.version}" for pin in pins)


def _repair_macos(prefix: Path) -> list[str]:
    done = []
    if shutil.which("xattr") is not None:
        ask(["xattr", "-dr", "com.apple.quarantine", str(prefix)])
        done.append("removed the quarantine mark")
    tools = ("otool", "install_name_tool", "codesign")
    bundled = prefix / "lib" / "libomp.dylib"
    if bundled.is_file() and all(shutil.which(tool) for tool in tools):
        for library in sorted((prefix / "lib").glob("*.dylib")):
            for name in _foreign_libomp(library):
                ask(
                    [
                        "install_name_tool",
                        "-change",
                        name,
                        "@loader_path/libomp.dylib",
                        str(library),
                    ]
                )
                ask(["codesign", "--force", "--sign", "-", str(library)])
                done.append(f"pointed {library.name} at the libomp beside it")
    return done


def _foreign_libomp(library: Path) -> list[str]:
    words = (line.split() for line in ask(["otool", "-L", str(library)]).out.splitlines())
    names = (each[0] for each in words if each)
    return [name for name in names if name.endswith("libomp.dylib") and name.startswith("/")]
