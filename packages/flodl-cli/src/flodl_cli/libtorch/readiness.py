"""Whether one host is ready to train: its GPUs, its torch, NCCL, the data, tools and ports."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flodl_cli.host.mounts import filesystem_of, port_is_free
from flodl_cli.host.nccl import find_nccl, nccl_version
from flodl_cli.libtorch.diagnosis import Diagnosis, spoken_arch
from flodl_sys.gpu import Vendor

_TOOL_OF_SCHEME = {"rsync": "rsync", "git+https": "git", "git+ssh": "git", "sshfs": "sshfs"}
_PACKAGES = {"ssh": "openssh-client"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """What the caller asks to look at; ``data_path`` is ``None`` to leave the data out."""

    host: str
    port: int
    data_path: Path | None
    data_is_named: bool
    service: str | None = None
    docker_works: bool = False
    services: tuple[str, ...] = ()
    blocks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """The findings: ``issues`` stand in the way, ``warnings`` may."""

    diagnosis: Diagnosis
    host: str
    data_path: dict[str, Any] | None
    nccl: dict[str, str] | None
    issues: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """``READY``, or how much stands in the way."""
        warned = _counted(len(self.warnings), "warning")
        if self.issues:
            tail = f", {warned}" if self.warnings else ""
            return f"ISSUES ({_counted(len(self.issues), 'error')}{tail})"
        return f"READY ({warned})" if self.warnings else "READY"

    def as_data(self) -> dict[str, Any]:
        """The same for programs."""
        known = self.diagnosis.as_data()
        return {
            "host": self.host,
            "gpus": known["gpus"],
            "torch": known["torch"],
            "libtorch": known["libtorch"],
            "data_path": self.data_path,
            "nccl": self.nccl,
            "issues": list(self.issues),
            "warnings": list(self.warnings),
            "ready": not self.issues,
        }


def assess(diagnosis: Diagnosis, wishes: Wishes) -> Readiness:
    """Compare what there is with what a run needs."""
    issues: list[str] = []
    warnings: list[str] = [note.message for note in diagnosis.machine.scan.notes]
    _gpus(diagnosis, issues, warnings)
    nccl = _nccl(diagnosis, issues, warnings)
    data = _data(wishes, issues, warnings)
    issues += _missing_tools(wishes.blocks)
    if not port_is_free(wishes.port):
        issues.append(f"port {wishes.port} is in use: choose another one with --port")
    if wishes.service is not None:
        issues += _docker(wishes, wishes.service)
    return Readiness(
        diagnosis=diagnosis,
        host=wishes.host,
        data_path=data,
        nccl=nccl,
        issues=tuple(issues),
        warnings=tuple(warnings),
    )


def _gpus(diagnosis: Diagnosis, issues: list[str], warnings: list[str]) -> None:
    used, gpus = diagnosis.used, diagnosis.machine.scan.gpus
    if used is None:
        issues.append(
            "no torch in the environment and no active libtorch: uv sync, or fdl libtorch download"
        )
    if not gpus:
        warnings.append("no GPU was found: only the CPU backends can run")
        return
    if used is None:
        return
    vendors = {gpu.vendor.value for gpu in gpus}
    if used.vendor not in vendors:
        issues.append(
            f"torch {used.version} is built for {used.vendor}, and the GPUs are "
            f"{' and '.join(sorted(vendors))}: fdl torch use auto"
        )
        return
    issues += [
        f"GPU {gpu.index} ({gpu.name}): torch {used.version} has no code for {spoken_arch(gpu)}, "
        f"only for {' '.join(used.archs)}"
        for gpu in gpus
        if gpu.vendor.value == used.vendor and diagnosis.is_covered(gpu) is False
    ]


def _nccl(diagnosis: Diagnosis, issues: list[str], warnings: list[str]) -> dict[str, str] | None:
    used = diagnosis.used
    if used is None or used.vendor != Vendor.NVIDIA:
        return None
    library = find_nccl(Path(used.path))
    version = nccl_version(library) if library is not None else None
    if library is None or version is None:
        many = len(diagnosis.machine.scan.gpus) > 1
        (issues if many else warnings).append(
            f"no NCCL with torch {used.version}: install the NVIDIA packages of this torch"
        )
        return None
    return {"version": version, "path": str(library)}


def _data(wishes: Wishes, issues: list[str], warnings: list[str]) -> dict[str, Any] | None:
    path = wishes.data_path
    if path is None:
        return None
    found = {"path": str(path), "exists": path.is_dir(), "filesystem": None}
    if not path.is_dir():
        text = (
            f"the data folder {path} is not there: mount it, name another with --data-path, "
            "or leave it out with --skip-mount"
        )
        (issues if wishes.data_is_named else warnings).append(text)
    elif not os.access(path, os.R_OK | os.X_OK):
        issues.append(f"the data folder {path} cannot be read")
    else:
        found["filesystem"] = filesystem_of(path)
    return found


def _missing_tools(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Programs that the ``join`` and ``publish`` blocks of the manifest need."""
    needed: dict[str, str] = {}
    for block, settings in blocks.items():
        for key, value in (settings or {}).items():
            scheme = str(value).partition("://")[0]
            if "://" in str(value) and scheme in _TOOL_OF_SCHEME:
                needed.setdefault(_TOOL_OF_SCHEME[scheme], f"{block}.{key}")
            if key == "ssh" and value:
                needed.setdefault("ssh", f"{block}.{key}")
    for tool, place in needed.items():
        if shutil.which(tool) is None:
            name = _PACKAGES.get(tool, tool)
            yield (
                f"{place} needs {tool}: apt-get install {name}, dnf install {name}, "
                f"or brew install {name}"
            )


def _docker(wishes: Wishes, service: str) -> Iterator[str]:
    if not wishes.docker_works:
        yield "Docker does not answer: start it"
    elif service not in wishes.services:
        yield f"no compose service {service!r}; services: {', '.join(wishes.services) or 'none'}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
