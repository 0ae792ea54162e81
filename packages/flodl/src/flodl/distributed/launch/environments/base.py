"""A process that another launcher started as one of several, as its environment tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from flodl.core.errors import ConfigError


class Launcher(StrEnum):
    """Who starts the ranks."""

    TORCHRUN = "torchrun"
    SLURM = "slurm"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outside:
    """The place that another launcher gave this process."""

    launcher: Launcher
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    controller_host: str
    """Where the first process runs, and with it the controller."""
    port: int
    run: str

    @property
    def is_first(self) -> bool:
        """Whether this process brings the controller."""
        return self.rank == 0


def whole(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a variable as a number.

    Raises:
        ConfigError: It is missing, or no whole number from 0.
    """
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(
            f"{name}={text!r}: must be a whole number, as the launcher of this process sets it",
            hint=f"unset {name} to run without that launcher",
        )
    return int(text)
