"""The modes a model can be trained in: which run here, and why the others do not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddp_bench.choice import split_names, unknown_name
from ddp_bench.errors import UsageError

_SOLO = re.compile(r"solo-(0|[1-9][0-9]*)")
_OUTER = re.compile(r"(?P<mode>cpu-sync|cpu-cadence|cpu-async)-(slowmo|diloco)")
_UNAVAILABLE = "not available in this version"
_RENAMED = {"sync": "nccl-sync", "nccl-async": "cpu-async"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeInfo:
    """One line of the list of modes."""

    name: str
    description: str
    unavailable: str | None = None
    """Why it cannot run, or ``None`` where it can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SoloMode:
    """One process on one device, no averaging."""

    index: int

    @property
    def name(self) -> str:
        """The mode's name, which is also its folder's."""
        return f"solo-{self.index}"


MODES = (
    ModeInfo(name="solo-N", description="one process on device N, no averaging (CPU: solo-0)"),
    *(
        ModeInfo(name=name, description=description, unavailable=_UNAVAILABLE)
        for name, description in (
            ("nccl-sync", "GPU collectives after every batch"),
            ("nccl-cadence", "GPU collectives at the ElChe cadence"),
            ("gloo-sync", "the same on a Gloo group, after every batch"),
            ("gloo-cadence", "the same on a Gloo group, at the ElChe cadence"),
            ("cpu-sync", "averaging on the CPU after every batch"),
            ("cpu-cadence", "averaging on the CPU at the ElChe cadence"),
            ("cpu-async", "averaging on the CPU while training goes on"),
            ("cpu-*-slowmo", "a cpu mode with the SlowMo outer optimizer"),
            ("cpu-*-diloco", "a cpu mode with the DiLoCo outer optimizer"),
        )
    ),
)


def choose_modes(text: str, *, device_type: str, device_count: int) -> list[SoloMode]:
    """Return the modes that a comma list, or ``all``, names.

    Args:
        text: The list; ``all`` means every solo device.
        device_type: ``"cpu"`` or ``"cuda"``.
        device_count: Number of devices of that type; 1 for the CPU.

    Raises:
        UsageError: A mode is unknown, not available, or has no such device.
    """
    names = split_names(text)
    if names == ["all"]:
        return [SoloMode(index=index) for index in range(device_count)]
    return [_parse(name, device_type, device_count) for name in names]


def _parse(name: str, device_type: str, device_count: int) -> SoloMode:
    if solo := _SOLO.fullmatch(name):
        return _solo(int(solo[1]), device_type, device_count)
    legal = [f"solo-{index}" for index in range(device_count)]
    if name in _RENAMED:
        raise UsageError(
            f"mode {name!r}: this mode is now called {_RENAMED[name]!r}, and {_UNAVAILABLE}",
            hint=f"modes that run here: {', '.join(legal)}",
        )
    known = [mode.name for mode in MODES if mode.unavailable and "*" not in mode.name]
    if name in known or _OUTER.fullmatch(name):
        raise UsageError(
            f"mode {name!r}: {_UNAVAILABLE}", hint=f"modes that run here: {', '.join(legal)}"
        )
    raise unknown_name("mode", name, [*legal, *known])


def _solo(index: int, device_type: str, device_count: int) -> SoloMode:
    if index >= device_count:
        where = "the CPU is one device" if device_type == "cpu" else f"{device_count} GPU(s) here"
        raise UsageError(
            f"mode 'solo-{index}': {where}",
            hint=f"use solo-0{'' if device_count == 1 else f' to solo-{device_count - 1}'}",
        )
    return SoloMode(index=index)
