"""What a host daemon is told when it starts, by its standard input and nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field

from flodl.core.errors import LaunchError
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.hostd.command import Command
from flodl.distributed.protocol.values import Device

_AMD_MASKS = ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOptions:
    """The run that a host takes part in, and what it brings along."""

    run: str
    nonce: str
    address: str
    """``host:port`` of the controller."""
    token: str
    host: str
    devices: tuple[Device, ...]
    """One rank is started for each."""
    run_dir: str
    cwd: str
    command: Command | None = None
    payload: str | None = None
    entry: str | None = None
    ordinal: int = 0
    results: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    """Variables of the ranks, above those of the daemon."""
    threads: int | None = None
    data_address: str = "127.0.0.1"
    lasts: bool = True
    """Whether the daemon outlives the process that started it."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    respawn: int = 2
    """Times per hour that a rank is started again after a death that no user code caused."""
    vendor: str = "cpu"

    def to_json(self) -> str:
        """Return the options as one line."""
        body = dataclasses.asdict(self)
        body["command"] = None if self.command is None else self.command.to_body()
        return json.dumps(body)

    @classmethod
    def from_json(cls, text: str) -> HostOptions:
        """Return the options of a line.

        Raises:
            LaunchError: It holds none.
        """
        try:
            body = json.loads(text)
            command = body["command"]
            body["command"] = None if command is None else Command.from_body(command)
            body["devices"] = tuple(Device(**device) for device in body["devices"])
            body["timeouts"] = Timeouts(**body["timeouts"])
            return cls(**body)
        except (ValueError, TypeError, KeyError) as error:
            raise LaunchError(
                f"the host daemon was told no options: {error}",
                hint="it is started by flodl or fdl, not by hand",
            ) from error

    def uid(self, ordinal: int) -> str:
        """Return the permanent name of the member on a device."""
        return f"{self.host}/{self.devices[ordinal].uuid}/{ordinal}"

    def mask(self, ordinal: int) -> dict[str, str]:
        """Return the variables that leave a rank its own device, and no GPU on the CPU."""
        device = self.devices[ordinal]
        if self.vendor == "amd":
            return {"HIP_VISIBLE_DEVICES": str(device.index)}
        if self.vendor == "nvidia":
            is_known = device.uuid.startswith(("GPU-", "MIG-"))
            seen = device.uuid if is_known else str(device.index)
            return {"CUDA_VISIBLE_DEVICES": seen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}

    def rank_environ(self, ordinal: int) -> dict[str, str]:
        """Return the whole environment of a rank, apart from its place."""
        inherited = {**os.environ, **self.environ}
        if self.vendor == "amd":
            # they would apply before the rank's own mask, whose index counts all devices
            for name in _AMD_MASKS:
                inherited.pop(name, None)
        return {**inherited, **self.mask(ordinal)}
