"""The devices that torch can use in this process."""

from __future__ import annotations

import torch

from flodl.core.errors import ConfigError


def default_device() -> torch.device:
    """Return the first GPU where torch has one, else the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def parse_device(spec: str | torch.device) -> torch.device:
    """Return the device that ``spec`` names, after checking that this process can use it.

    Raises:
        ConfigError: ``spec`` is no device string, or names a device that is not here.
    """
    try:
        device = torch.device(spec)
    except RuntimeError as error:
        raise ConfigError(
            f"device {spec!r}: not a device name",
            hint='use "cpu", "cuda" or "cuda:<index>"',
        ) from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = device.index or 0
        if index >= count:
            raise ConfigError(
                f"device {str(spec)!r}: torch sees {count} CUDA devices in this process",
                hint='use "cpu", or an index below that count',
            )
        return torch.device("cuda", index)
    return device
