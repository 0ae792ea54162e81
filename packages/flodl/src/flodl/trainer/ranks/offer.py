"""What a run was started with, kept in its folder for the controller, which sees no GPU itself."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.core.errors import LaunchError
from flodl.distributed.launch.environments.base import Outside
from flodl.distributed.launch.environments.slurm import from_slurm
from flodl.distributed.launch.environments.torchrun import from_torchrun
from flodl.distributed.launch.hardware import cpu_devices, gpu_devices
from flodl.distributed.protocol.values import Device
from flodl_sys.gpu import detect_gpus_physical

if TYPE_CHECKING:
    from flodl.monitor.timeline import Timeline

_NAME = "offer.json"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOffer:
    """Devices of a run on this host."""

    devices: tuple[Device, ...]
    vendor: str
    """``cpu``, ``nvidia`` or ``amd``."""
    monitor: dict[str, object] | None = None
    """Where the launcher's monitor was serving, which is the controller's place from then on."""
    hosts: int = 1
    """Hosts that the run starts on."""

    @property
    def on_gpu(self) -> bool:
        """Whether ranks have GPUs."""
        return self.vendor != "cpu"

    def write(self, folder: Path) -> None:
        """Keep it in the run's folder."""
        (folder / _NAME).write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> RunOffer:
        """Return what was kept in a run's folder.

        Under torchrun or Slurm nothing is kept: the launcher's variables tell the number of ranks.

        Raises:
            LaunchError: Nothing was.
        """
        if not (folder / _NAME).exists():
            outside = from_torchrun(os.environ) or from_slurm(os.environ)
            if outside is not None:
                return _of_outside(outside)
        try:
            body = json.loads((folder / _NAME).read_text(encoding="utf-8"))
            devices = tuple(Device(**each) for each in body["devices"])
            return cls(
                devices=devices,
                vendor=body["vendor"],
                monitor=body["monitor"],
                hosts=body["hosts"],
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LaunchError(f"{folder / _NAME} does not say what was started: {error}") from error


def _of_outside(outside: Outside) -> RunOffer:
    gpus = detect_gpus_physical()
    hosts = -(-outside.world_size // outside.local_world_size)
    if len(gpus) >= outside.local_world_size:
        return RunOffer(
            devices=gpu_devices(gpus)[:1] * outside.world_size,
            vendor=gpus[0].vendor.value,
            hosts=hosts,
        )
    return RunOffer(devices=cpu_devices(outside.world_size), vendor="cpu", hosts=hosts)


def timeline_file(folder: Path) -> Path:
    """Return where the controller of a run leaves its timeline when the run is over."""
    return folder / "timeline.json"


def take_over(timeline: Timeline, file: Path) -> None:
    """Give a timeline of this process what the controller has left; it is told if that is none."""
    try:
        timeline.take_over(file)
    except OSError as error:
        _logger.warning("the timeline holds nothing of the ranks: %s", error)
