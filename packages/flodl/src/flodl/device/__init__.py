"""Which device work runs on."""

from flodl.device.info import default_device as default_device
from flodl.device.info import parse_device as parse_device

__all__ = ["default_device", "parse_device"]
