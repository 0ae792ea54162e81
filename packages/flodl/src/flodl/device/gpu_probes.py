"""Readings of GPUs that need no GPU runtime: NVML, ``nvidia-smi``, and the AMD driver's files.

None of them creates a CUDA context. A field that a device does not tell is ``None`` and takes no
other field with it.
"""

from __future__ import annotations

import importlib
import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from flodl.core.log import warn_once
from flodl.core.resources import GpuSnapshot

_logger = logging.getLogger(__name__)
_SMI_FIELDS = "index,uuid,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu"
_SMI_EVERY_S = 2.0
_SMI_TIMEOUT_S = 5.0
_MIB = 1 << 20
_AMD_VENDOR = "0x1002"


class GpuProbe(Protocol):
    """A way to read all GPUs of one vendor."""

    def read(self) -> Sequence[GpuSnapshot]:
        """Return every GPU, in the driver's order."""


class NvmlProbe:
    """NVIDIA GPUs by the driver's management library.

    Args:
        nvml: The module ``pynvml``, initialized, or something that behaves like it.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        self._devices = [(handle, self._name(handle), self._uuid(handle)) for handle in handles]

    def read(self) -> list[GpuSnapshot]:
        """Return every GPU."""
        return [self._reading(i, *device) for i, device in enumerate(self._devices)]

    def _reading(self, index: int, handle: Any, name: str, uuid: str | None) -> GpuSnapshot:
        nvml = self._nvml
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuSnapshot(
            device_index=index,
            name=name,
            uuid=uuid,
            util_percent=self._utilization(handle),
            vram_used_bytes=None if memory is None else int(memory.used),
            vram_total_bytes=None if memory is None else int(memory.total),
            power_w=None if power is None else power / 1000,
            temp_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        )

    def _utilization(self, handle: Any) -> float | None:
        mode = self._ask(self._nvml.nvmlDeviceGetMigMode, handle)
        if mode is not None and mode[0]:
            # the whole GPU's figure says nothing about one slice of it
            return None
        rates = self._ask(self._nvml.nvmlDeviceGetUtilizationRates, handle)
        return None if rates is None else float(rates.gpu)

    def _name(self, handle: Any) -> str:
        name = self._ask(self._nvml.nvmlDeviceGetName, handle)
        return "NVIDIA GPU" if name is None else _text(name)

    def _uuid(self, handle: Any) -> str | None:
        uuid = self._ask(self._nvml.nvmlDeviceGetUUID, handle)
        return None if uuid is None else _text(uuid)

    def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except self._nvml.NVMLError:
            return None


class SmiProbe:
    """NVIDIA GPUs by ``nvidia-smi``, asked at most every two seconds; where NVML is missing.

    Args:
        ask: Returns the tool's answer; for tests.
        clock: Seconds; for tests.
    """

    def __init__(
        self,
        ask: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = _ask_smi if ask is None else ask
        self._clock = clock
        self._asked_at = -_SMI_EVERY_S

    def read(self) -> list[GpuSnapshot]:
        """Return every GPU, or nothing while the last answer is younger than two seconds."""
        now = self._clock()
        if now - self._asked_at < _SMI_EVERY_S:
            return []
        self._asked_at = now
        rows = [[part.strip() for part in line.split(",")] for line in self._ask().splitlines()]
        return [_smi_reading(row) for row in rows if len(row) >= 8 and row[0].isdecimal()]


class AmdProbe:
    """AMD GPUs by their driver's files.

    Args:
        root: Folder that stands for ``/``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        cards = (root / "sys/class/drm").glob("card[0-9]*/device")
        found = [card for card in cards if _line(card / "vendor") == _AMD_VENDOR]
        self._cards = sorted(found, key=lambda card: int(card.parent.name.removeprefix("card")))

    @property
    def has_gpus(self) -> bool:
        """Whether there is any."""
        return bool(self._cards)

    def read(self) -> list[GpuSnapshot]:
        """Return every GPU."""
        return [
            GpuSnapshot(
                device_index=index,
                name=_line(card / "product_name") or "AMD GPU",
                uuid=_line(card / "unique_id"),
                util_percent=_number(card / "gpu_busy_percent"),
                vram_used_bytes=_number(card / "mem_info_vram_used"),
                vram_total_bytes=_number(card / "mem_info_vram_total"),
            )
            for index, card in enumerate(self._cards)
        ]


def find_probe(root: Path = Path("/")) -> GpuProbe | None:
    """Return the way to read this machine's GPUs, ``None`` where it has none."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        return NvmlProbe(nvml)
    except Exception as error:  # noqa: BLE001 (every driver fails in its own way)
        reason = str(error)
    if shutil.which("nvidia-smi") is not None:
        warn_once(_logger, "NVML cannot be used (%s); reading GPUs by nvidia-smi", reason)
        return SmiProbe()
    amd = AmdProbe(root)
    return amd if amd.has_gpus else None


def _ask_smi() -> str:
    query = ["nvidia-smi", f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            query, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _smi_reading(row: Sequence[str]) -> GpuSnapshot:
    index, uuid, *name, util, used, total, power, temperature = row
    return GpuSnapshot(
        device_index=int(index),
        name=", ".join(name),
        uuid=uuid or None,
        util_percent=_float(util),
        vram_used_bytes=_mebibytes(used),
        vram_total_bytes=_mebibytes(total),
        power_w=_float(power),
        temp_c=_float(temperature),
    )


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None


def _mebibytes(text: str) -> int | None:
    value = _float(text)
    return None if value is None else round(value * _MIB)


def _line(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def _number(file: Path) -> int | None:
    text = _line(file)
    return int(text) if text is not None and text.isdecimal() else None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
