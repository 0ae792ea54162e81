"""What this machine has and whether it fits together: GPUs, torch, libtorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flodl_cli.errors import LibtorchError
from flodl_cli.host.system import System
from flodl_cli.libtorch.active import environment_prefix
from flodl_cli.libtorch.coverage import cuda_token, uncovered
from flodl_cli.libtorch.examine import TorchVersion, gpu_archs, torch_version
from flodl_cli.libtorch.home import Home
from flodl_cli.libtorch.store import Store, Variant
from flodl_cli.libtorch.wheel import find_prefix, stale_reason
from flodl_sys.gpu import GpuInfo, GpuScan, Vendor

_SHADOW = Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What was found out before: the system, its GPUs, and the NVIDIA driver."""

    system: System
    scan: GpuScan
    driver: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """A torch or libtorch, and the GPU architectures that it has code for."""

    path: str
    version: str
    vendor: str
    cuda: str | None
    archs: tuple[str, ...]
    source: str
    abi: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Everything that ``fdl diagnose`` tells."""

    home: Home
    machine: Machine
    torch: Installed | None
    libtorch: Installed | None
    variants: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def used(self) -> Installed | None:
        """What a program of the project would run on."""
        return self.torch or self.libtorch

    def with_libtorch(self, libtorch: Installed) -> Diagnosis:
        """The same machine, on which programs will run on ``libtorch`` alone."""
        return replace(self, torch=None, libtorch=libtorch)

    def is_covered(self, gpu: GpuInfo) -> bool | None:
        """Whether there is code for ``gpu``; ``None`` when that cannot be said."""
        if self.used is None or gpu.arch is None:
            return None
        return not uncovered(self.used.archs, [gpu.arch])

    def as_data(self) -> dict[str, Any]:
        """The same for programs."""
        devices = [self._gpu(each) for each in self.machine.scan.gpus]
        return {
            "context": {"mode": self.home.kind, "root": str(self.home.path)},
            "system": asdict(self.machine.system),
            "gpus": devices,
            "gpu_notes": [
                {"vendor": note.vendor, "kind": note.kind, "message": note.message}
                for note in self.machine.scan.notes
            ],
            "cuda": {
                "driver": self.machine.driver,
                "devices": [each for each in devices if each["vendor"] == Vendor.NVIDIA],
            },
            "torch": asdict(self.torch) if self.torch else None,
            "libtorch": asdict(self.libtorch) if self.libtorch else None,
            "variants": list(self.variants),
            "warnings": list(self.warnings),
        }

    def _gpu(self, gpu: GpuInfo) -> dict[str, Any]:
        capability = gpu.compute_capability
        return {
            "index": gpu.index,
            "name": gpu.name,
            "vendor": gpu.vendor,
            "arch": gpu.arch,
            "sm": f"{capability[0]}.{capability[1]}" if capability else None,
            "uuid": gpu.uuid,
            "vram_bytes": gpu.vram_bytes,
            "arch_compatible": self.is_covered(gpu),
        }


def diagnose(
    home: Home, machine: Machine, environ: Mapping[str, str], *, case: str = ""
) -> Diagnosis:
    """Look at what is installed for ``home`` and compare it with the machine."""
    store = Store(home.libtorch, case=case)
    warnings: list[str] = []
    active: Variant | None = None
    try:
        active = store.active() if store.active_id() is not None else None
    except LibtorchError as error:
        warnings.append(error.message)
    found = Diagnosis(
        home=home,
        machine=machine,
        torch=environment_install(home.path, environ),
        libtorch=_libtorch(active) if active is not None else None,
        variants=tuple(each.id for each in store.variants()),
        warnings=(),
    )
    warnings += [note.message for note in machine.scan.notes]
    warnings += _uncovered(found)
    warnings += [
        f"{each.id} is stale: {reason}; run `fdl libtorch link` again"
        for each in store.variants()
        if (reason := stale_reason(each)) is not None
    ]
    warnings += _of_surroundings(home, machine, environ)
    return Diagnosis(
        home=home,
        machine=machine,
        torch=found.torch,
        libtorch=found.libtorch,
        variants=found.variants,
        warnings=tuple(warnings),
    )


def environment_install(root: Path, environ: Mapping[str, str]) -> Installed | None:
    """The torch of the project's environment, from its files; it is not imported."""
    prefix = environment_prefix(root, environ)
    version = torch_version(prefix) if prefix is not None else None
    if prefix is None or version is None:
        return None
    return _installed(prefix, version, "environment")


def installed_in(prefix: Path) -> Installed:
    """The libtorch in the folder ``prefix``.

    Raises:
        LibtorchError: There is none.
    """
    found = find_prefix(prefix)
    return _installed(found.prefix, found.version, "linked")


def _installed(prefix: Path, version: TorchVersion, source: str) -> Installed:
    return Installed(
        path=str(prefix),
        version=version.version,
        vendor="nvidia" if version.cuda else "amd" if version.rocm else "cpu",
        cuda=version.cuda,
        archs=gpu_archs(prefix / "lib"),
        source=source,
    )


def _libtorch(variant: Variant) -> Installed:
    metadata = variant.metadata
    return Installed(
        path=str(variant.prefix),
        version=metadata.torch,
        vendor=metadata.vendor,
        cuda=None if metadata.cuda in ("", "none") else metadata.cuda,
        archs=metadata.arch_tokens,
        source=metadata.source,
        abi=metadata.abi,
    )


def _uncovered(found: Diagnosis) -> list[str]:
    used = found.used
    if used is None:
        return []
    return [
        f"{gpu.name}: no code for {spoken_arch(gpu)} in torch {used.version} "
        f"(it has {' '.join(used.archs) or 'none for GPUs'})"
        for gpu in found.machine.scan.gpus
        if found.is_covered(gpu) is False
    ]


def spoken_arch(gpu: GpuInfo) -> str:
    """The architecture as builds name it: ``12.0``, ``gfx942``."""
    if gpu.arch is None:
        return "an unknown architecture"
    return gpu.arch if gpu.vendor is Vendor.AMD else cuda_token(gpu.arch)


def _of_surroundings(home: Home, machine: Machine, environ: Mapping[str, str]) -> list[str]:
    folders = (each for each in environ.get("LD_LIBRARY_PATH", "").split(":") if each)
    warnings = [
        f"LD_LIBRARY_PATH holds {folder}, which breaks `import torch` of other versions: "
        "use `fdl libtorch run` instead"
        for folder in folders
        if (Path(folder) / "libtorch_cpu.so").exists()
    ]
    if machine.system.wsl:
        if str(home.path).startswith("/mnt/"):
            warnings.append(f"{home.path} is on a Windows drive, which is slow from WSL")
        if _SHADOW.exists():
            warnings.append(f"{_SHADOW} hides the driver of WSL in /usr/lib/wsl/lib: remove it")
    return warnings
