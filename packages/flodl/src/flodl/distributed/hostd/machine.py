"""The pure machine of this host, made from what the daemon was told."""

from __future__ import annotations

import platform
from importlib import metadata

from flodl.distributed.hostd.options import HostOptions
from flodl.distributed.lifecycle.host import HostMachine
from flodl.distributed.lifecycle.host_state import HostSettings
from flodl.distributed.protocol.values import Versions


def machine_of(options: HostOptions) -> HostMachine:
    """Return the machine of the host that the options describe."""
    devices = tuple((options.uid(n), device) for n, device in enumerate(options.devices))
    return HostMachine(
        HostSettings(
            host=options.host,
            devices=devices,
            versions=installed_versions(),
            vendor=options.vendor,
            data_address=options.data_address,
            timeouts=options.timeouts,
            respawn=options.respawn,
            controller_grace=options.timeouts.controller_grace,
        )
    )


def installed_versions() -> Versions:
    """Return what is installed here, without loading it."""
    return Versions(
        flodl=_version("flodl"),
        torch=_version("torch"),
        python=platform.python_version(),
        nccl=_version("nvidia-nccl-cu13") or _version("nvidia-nccl-cu12"),
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
