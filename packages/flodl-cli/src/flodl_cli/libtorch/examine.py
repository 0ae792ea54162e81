"""Finds out what a libtorch is from its own files, without loading any of them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.libtorch.elf import NotElf, holds_name, read_shared_object
from flodl_cli.libtorch.fatbin import cuda_archs, rocm_archs
from flodl_cli.libtorch.metadata import NO_CUDA

_CXX11 = b"NSt7__cxx11"
_DEFAULT_CXX = "17"
_FIRST_CXX20 = (2, 14)
_LIBRARY_NAMES = ("lib{}.so", "lib{}.dylib", "{}.lib")


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchVersion:
    """A version of torch and the runtimes it was built for, ``None`` where it was not."""

    version: str
    cuda: str | None = None
    rocm: str | None = None

    @property
    def bucket(self) -> str:
        """The build as a variant is called: ``cpu``, ``cu132``, ``rocm72``."""
        if self.cuda:
            return "cu" + "".join(self.cuda.split(".")[:2])
        return "rocm" + "".join(self.rocm.split(".")[:2]) if self.rocm else "cpu"


def library(lib: Path, name: str) -> Path | None:
    """The file of the library ``name`` in ``lib``, in the spelling of any system."""
    candidates = (lib / pattern.format(name) for pattern in _LIBRARY_NAMES)
    return next((file for file in candidates if file.is_file()), None)


def torch_version(prefix: Path) -> TorchVersion | None:
    """The version of the libtorch in ``prefix``, from the first file there that tells it."""
    return (
        _from_python(prefix / "version.py")
        or _from_build_version(prefix / "build-version")
        or _from_cmake(prefix / "share" / "cmake" / "Torch" / "TorchConfigVersion.cmake", prefix)
    )


def machine(lib: Path) -> str | None:
    """Processor that the libraries are for; ``None`` for files that are not those of Linux."""
    file = library(lib, "torch_cpu") or library(lib, "torch")
    try:
        return read_shared_object(file).machine if file else None
    except (OSError, NotElf):
        return None


def gpu_archs(lib: Path) -> tuple[str, ...]:
    """GPU architectures that the libraries hold code for; empty when that cannot be read."""
    for name in ("torch_cuda", "torch_cuda_linalg"):
        file = library(lib, name)
        if file is None or file.suffix != ".so":
            continue
        try:
            found = cuda_archs(file)
        except (OSError, NotElf):
            found = ()
        if found:
            return found
    return rocm_archs(lib)


def cxx11_abi(prefix: Path) -> str:
    """``1`` or ``0``: whether strings are those of C++11; ``1`` where libstdc++ is not in use."""
    told = re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", _torch_config(prefix))
    if told:
        return told[1]
    file = prefix / "lib" / "libc10.so"
    try:
        return "1" if not file.is_file() or holds_name(file, _CXX11) else "0"
    except (OSError, NotElf):
        return "1"


def cxx_standard(prefix: Path, version: str) -> str:
    """The C++ standard that the headers need, such as ``17``."""
    told = re.search(r"(?:CXX_STANDARD\s+|cxx_std_)(\d+)", _torch_config(prefix))
    if told:
        return told[1]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return "20" if numbers >= _FIRST_CXX20 else _DEFAULT_CXX


def facts(prefix: Path) -> dict[str, str]:
    """Keys of ``.arch`` that the files in ``prefix`` tell."""
    version = torch_version(prefix)
    archs = gpu_archs(prefix / "lib")
    found = {
        "abi": cxx11_abi(prefix),
        "cxx": cxx_standard(prefix, version.version if version else ""),
        "archs": " ".join(archs) or ("cpu" if version and version.bucket == "cpu" else ""),
    }
    if version is not None:
        found |= {
            "torch": version.version,
            "cuda": version.cuda or NO_CUDA,
            "rocm": version.rocm or "",
        }
    return found


def _torch_config(prefix: Path) -> str:
    try:
        file = prefix / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _from_python(file: Path) -> TorchVersion | None:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None
    values: dict[str, str] = {}
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value)))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(value)))
            ):
                values[name] = value
    if "__version__" not in values:
        return None
    rocm = values.get("rocm") or values.get("hip")
    return TorchVersion(
        version=values["__version__"].partition("+")[0],
        cuda=values.get("cuda"),
        rocm=".".join(rocm.split(".")[:2]) if rocm else None,
    )


def _from_build_version(file: Path) -> TorchVersion | None:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    version, _, tag = text.partition("+")
    cuda = re.fullmatch(r"cu(\d+)(\d)", tag)
    rocm = re.fullmatch(r"rocm(\d+\.\d+).*", tag)
    return TorchVersion(
        version=version,
        cuda=f"{cuda[1]}.{cuda[2]}" if cuda else None,
        rocm=rocm[1] if rocm else None,
    )


def _from_cmake(file: Path, prefix: Path) -> TorchVersion | None:
    try:
        told = re.search(r'PACKAGE_VERSION "([^"]+)"', file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if told is None:
        return None
    return TorchVersion(version=told[1], cuda=_cuda_runtime(prefix / "lib"))


def _cuda_runtime(lib: Path) -> str | None:
    """The CUDA runtime that the libraries ask for, such as ``12``, for builds that do not tell."""
    file = library(lib, "torch_cuda")
    try:
        needed = read_shared_object(file).needed if file else ()
    except (OSError, NotElf):
        return None
    found = (re.match(r"libcudart(?:-\w+)?\.so\.(\d+(?:\.\d+)?)", name) for name in needed)
    return next((match[1] for match in found if match), None)
