"""Which torch a project runs on: its environment's, else the active libtorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flodl_cli.errors import LibtorchError
from flodl_cli.libtorch.examine import TorchVersion, torch_version
from flodl_cli.libtorch.home import find_home
from flodl_cli.libtorch.store import Store, Variant
from flodl_sys import names as variables

_FEATURES = {"nvidia": "cuda", "amd": "rocm", "cpu": ""}


def gpu_feature(root: Path, environ: Mapping[str, str]) -> str:
    """``cuda``, ``rocm``, or nothing for a CPU build or none at all."""
    installed = environment_torch(root, environ)
    if installed is not None:
        return "cuda" if installed.cuda else "rocm" if installed.rocm else ""
    variant = active_variant(root, environ)
    return _FEATURES[variant.metadata.vendor] if variant is not None else ""


def environment_torch(root: Path, environ: Mapping[str, str]) -> TorchVersion | None:
    """The torch in ``.venv`` of the project, or in the active environment; not imported."""
    prefix = environment_prefix(root, environ)
    return torch_version(prefix) if prefix is not None else None


def environment_prefix(root: Path, environ: Mapping[str, str]) -> Path | None:
    """The folder of that torch."""
    for folder in (root / ".venv", Path(environ.get("VIRTUAL_ENV") or root / ".venv")):
        for pattern in ("lib/python*/site-packages/torch", "Lib/site-packages/torch"):
            for prefix in folder.glob(pattern):
                if torch_version(prefix) is not None:
                    return prefix
    return None


def active_variant(root: Path, environ: Mapping[str, str]) -> Variant | None:
    """The active libtorch of the project, or of the user when the project has none."""
    case = environ.get(variables.LIBTORCH_CASE.name, "")
    for home in (find_home(root, environ), find_home(root, environ, is_global=True)):
        try:
            return Store(home.libtorch, case=case).active()
        except LibtorchError:
            continue
    return None


def compose_variables(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What compose files may refer to: where the active libtorch is, and its CUDA version."""
    variant = active_variant(root, environ)
    if variant is None:
        return {}
    found = {"LIBTORCH_HOST_PATH": str(variant.prefix)}
    cpu = variant.directory.parents[1] / "precompiled" / "cpu"
    if cpu.is_dir():
        found["LIBTORCH_CPU_PATH"] = str(cpu)
    if variant.metadata.vendor == "nvidia":
        cuda = variant.metadata.cuda
        found |= {"CUDA_VERSION": cuda, "CUDA_TAG": "cu" + cuda.replace(".", "")}
    return found
