"""The five modes, when ranks average and how, and the names people give them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from flodl.core.errors import ConfigError

Collective = Literal["nccl", "gloo"]
Outer = Literal["slowmo", "diloco"]
Payload = Literal["grads", "params", "snapshot"]


class ElCheMode(StrEnum):
    """When ranks average (sync, cadence, async) and over which plane (nccl, cpu)."""

    NCCL_SYNC = "nccl_sync"
    NCCL_CADENCE = "nccl_cadence"
    CPU_SYNC = "cpu_sync"
    CPU_CADENCE = "cpu_cadence"
    CPU_ASYNC = "cpu_async"

    @property
    def is_sync(self) -> bool:
        """Whether ranks average after every batch."""
        return self in (ElCheMode.NCCL_SYNC, ElCheMode.CPU_SYNC)

    @property
    def is_cadence(self) -> bool:
        """Whether ranks average when the slowest has worked for the anchor's time."""
        return self in (ElCheMode.NCCL_CADENCE, ElCheMode.CPU_CADENCE)

    @property
    def is_async(self) -> bool:
        """Whether ranks go on training while an average is made."""
        return self is ElCheMode.CPU_ASYNC

    @property
    def is_nccl(self) -> bool:
        """Whether averages are made by collectives of the GPUs."""
        return self in (ElCheMode.NCCL_SYNC, ElCheMode.NCCL_CADENCE)

    @property
    def default_payload(self) -> Payload:
        """What ranks exchange in this mode unless the configuration says otherwise."""
        return _PAYLOADS.get(self, "params")

    @classmethod
    def of(cls, policy: str, backend: str) -> ElCheMode:
        """Return the mode of an older pair such as ``("Cadence", "Nccl")``, in any case.

        Raises:
            ConfigError: No mode has that pair.
        """
        name = f"{backend}_{policy}".lower()
        if name == "nccl_async":
            raise ConfigError(
                "policy Async with backend Nccl: no such mode", hint="use cpu_async instead"
            )
        if name not in set(cls):
            raise ConfigError(
                f"policy {policy!r} with backend {backend!r}: expected Sync, Cadence or Async "
                "with Nccl or Cpu"
            )
        return cls(name)


_PAYLOADS: dict[ElCheMode, Payload] = {
    ElCheMode.NCCL_SYNC: "grads",
    ElCheMode.CPU_ASYNC: "snapshot",
}

_OUTER_SUFFIXES: tuple[Outer, ...] = ("slowmo", "diloco")
_GLOO_MODES = {"gloo-sync": ElCheMode.NCCL_SYNC, "gloo-cadence": ElCheMode.NCCL_CADENCE}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeName:
    """What a mode string of a manifest or a benchmark stands for."""

    mode: ElCheMode | None
    """``None`` for ``solo-<n>``: one process without averaging."""
    collective: Collective = "nccl"
    outer: Outer | None = None
    solo_device: int | None = None

    @classmethod
    def parse(cls, text: str) -> ModeName:
        """Return the meaning of ``nccl-cadence``, ``gloo-sync``, ``cpu-async-diloco``, ``solo-0``.

        Raises:
            ConfigError: The text is no mode, or an outer optimizer is added to nccl-sync or solo.
        """
        base, outer = _split_outer(text.replace("_", "-"))
        kind, _, number = base.partition("-")
        if kind == "solo" and number.isdecimal() and outer is None:
            return cls(mode=None, solo_device=int(number))
        gloo = base in _GLOO_MODES
        mode = _GLOO_MODES.get(base) or _MODES_BY_NAME.get(base)
        if mode is None or (outer is not None and mode is ElCheMode.NCCL_SYNC):
            legal = ", ".join([*_MODES_BY_NAME, *_GLOO_MODES, "solo-<n>"])
            raise ConfigError(
                f"mode {text!r}: expected one of {legal}; -slowmo or -diloco may follow a mode "
                "that averages parameters"
            )
        return cls(mode=mode, collective="gloo" if gloo else "nccl", outer=outer)


_MODES_BY_NAME = {mode.value.replace("_", "-"): mode for mode in ElCheMode}


def _split_outer(text: str) -> tuple[str, Outer | None]:
    for suffix in _OUTER_SUFFIXES:
        if text.endswith(f"-{suffix}"):
            return text.removesuffix(f"-{suffix}"), suffix
    return text, None
