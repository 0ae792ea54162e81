"""Polls this host and its GPUs in the background, without touching a GPU runtime."""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flodl.core.errors import ConfigError
from flodl.core.log import warn_once
from flodl.core.resources import Envelope, GpuSnapshot, ResourceSample, Spread
from flodl.device.gpu_probes import GpuProbe, find_probe
from flodl.device.host import HostProbe
from flodl_sys import names

_GPU_FIELDS = (
    "util_percent",
    "vram_allocated_bytes",
    "vram_used_bytes",
    "vram_total_bytes",
    "power_w",
    "temp_c",
)
_HOST_FIELDS = ("cpu_percent", "ram_used_bytes", "ram_total_bytes", "cpu_count")
_logger = logging.getLogger(__name__)

AllocatedFn = Callable[[], Mapping[int, int]]


class ResourceReader:
    """One consumer's view of the sampler: everything since it last looked, not just the moment.

    The latest value alone would show a busy GPU as idle at the end of every epoch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._host = {field: Envelope() for field in _HOST_FIELDS}
        self._gpus: dict[int, dict[str, Envelope]] = {}
        self._facts: dict[int, GpuSnapshot] = {}

    def add(self, sample: ResourceSample) -> None:
        """Take in one reading."""
        with self._lock:
            for field, envelope in self._host.items():
                envelope.add(getattr(sample, field))
            for gpu in sample.gpus:
                self._facts[gpu.device_index] = gpu
                envelopes = self._gpus.setdefault(
                    gpu.device_index, {field: Envelope() for field in _GPU_FIELDS}
                )
                for field, envelope in envelopes.items():
                    envelope.add(getattr(gpu, field))

    def read(self) -> tuple[ResourceSample, dict[int, dict[str, Spread]]]:
        """Return the means since the last reading, and per device the spread of each field."""
        with self._lock:
            host = {field: envelope.read() for field, envelope in self._host.items()}
            spreads = {
                index: {f: s for f, e in fields.items() if (s := e.read()) is not None}
                for index, fields in self._gpus.items()
            }
            facts = dict(self._facts)
        gpus = tuple(
            replace(facts[index], **{f: _typical(f, fields.get(f)) for f in _GPU_FIELDS})
            for index, fields in sorted(spreads.items())
            if fields
        )
        means: dict[str, Any] = {f: _typical(f, spread) for f, spread in host.items()}
        return ResourceSample(**means, gpus=gpus), spreads


class ResourceSampler:
    """Reads CPU, memory and GPUs every quarter of a second, in a thread of its own.

    It never creates a CUDA context: utilization and memory come from the driver, and what this
    process has allocated is asked of torch only where torch has a context already.

    Args:
        devices: Physical indices of the run's GPUs; ``None`` means those that this process has
            allocated memory on.
        poll_ms: Milliseconds between readings; ``None`` for ``FLODL_RESOURCE_POLL_MS``, or 250.
        probe: Reads GPUs; ``None`` finds out.
        host: Reads the host; ``None`` for this one.
        allocated: Returns bytes allocated by this process per physical index; for tests.

    Raises:
        ConfigError: ``poll_ms`` is not positive.
    """

    def __init__(
        self,
        devices: Sequence[int] | None = None,
        *,
        poll_ms: float | None = None,
        probe: GpuProbe | None = None,
        host: HostProbe | None = None,
        allocated: AllocatedFn | None = None,
    ) -> None:
        self.poll_ms = _poll_ms(poll_ms)
        self._devices = None if devices is None else frozenset(devices)
        self._probe = probe
        self._has_looked = probe is not None
        self._host = host
        self._allocated = TorchAllocator() if allocated is None else allocated
        self._used: set[int] = set()
        self._readers: list[weakref.ref[ResourceReader]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def watch(self, devices: Sequence[int]) -> None:
        """Read these GPUs from now on, by physical index."""
        self._devices = frozenset(devices)

    def reader(self) -> ResourceReader:
        """Return a view for one consumer; it fills from now on, while somebody holds it."""
        reader = ResourceReader()
        with self._lock:
            self._readers.append(weakref.ref(reader))
        return reader

    def poll(self) -> ResourceSample:
        """Read everything once, and hand it to all readers."""
        if self._host is None:
            self._host = HostProbe()
        used, total = self._host.memory()
        sample = ResourceSample(
            cpu_percent=self._host.cpu_percent(),
            ram_used_bytes=used,
            ram_total_bytes=total,
            cpu_count=self._host.cpu_count,
            gpus=self._read_gpus(),
        )
        with self._lock:
            alive = [reader for ref in self._readers if (reader := ref()) is not None]
            self._readers = [ref for ref in self._readers if ref() is not None]
        for reader in alive:
            reader.add(sample)
        return sample

    def start(self) -> None:
        """Begin to read in the background. Idempotent."""
        if self._thread is None:
            self._stop.clear()
            # the thread holds no reference to the sampler, so that dropping it ends the thread
            self._thread = threading.Thread(
                target=_poll_until,
                args=(weakref.ref(self), self._stop, self.poll_ms / 1000),
                name="flodl-resources",
                daemon=True,
            )
            weakref.finalize(self, self._stop.set)
            self._thread.start()

    def stop(self) -> None:
        """End the background readings. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join()

    def _read_gpus(self) -> tuple[GpuSnapshot, ...]:
        allocated = self._allocated()
        self._used.update(allocated)
        wanted = self._used if self._devices is None else self._devices
        if not wanted:
            return ()
        if not self._has_looked:
            self._probe, self._has_looked = find_probe(), True
        if self._probe is None:
            return ()
        return tuple(
            replace(gpu, vram_allocated_bytes=allocated.get(gpu.device_index))
            for gpu in self._probe.read()
            if gpu.device_index in wanted
        )


class TorchAllocator:
    """What torch has reserved on each physical device, where it has a context at all."""

    def __init__(self) -> None:
        self._physical: dict[int, int] | None = None

    def __call__(self) -> dict[int, int]:
        """Return bytes by physical index, for devices with any."""
        torch = sys.modules.get("torch")
        # asking an uninitialized runtime would create a context on a GPU
        if torch is None or not torch.cuda.is_initialized():
            return {}
        if self._physical is None:
            self._physical = physical_indices(torch)
        reserved = {index: int(torch.cuda.memory_reserved(index)) for index in self._physical}
        return {self._physical[index]: size for index, size in reserved.items() if size > 0}


def physical_indices(torch: Any) -> dict[int, int]:
    """Return torch's device indices with the driver's, whatever the visibility variables say."""
    from flodl_sys import detect_gpus, scan_gpus

    known = {gpu.uuid: gpu.index for gpu in scan_gpus().gpus if gpu.uuid is not None}
    visible = [gpu.index for gpu in detect_gpus()]
    found = {}
    for index in range(torch.cuda.device_count()):
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        by_order = visible[index] if index < len(visible) else index
        found[index] = known.get(f"GPU-{uuid}", by_order)
    return found


def _poll_until(
    sampler: weakref.ref[ResourceSampler], stop: threading.Event, pause_s: float
) -> None:
    while True:
        held = sampler()
        if held is None:
            return
        try:
            held.poll()
        except Exception as error:  # noqa: BLE001 (an observer must not end what it observes)
            warn_once(_logger, "resources cannot be read: %s", error)
        del held
        if stop.wait(pause_s):
            return


def _typical(field: str, spread: Spread | None) -> Any:
    if spread is None:
        return None
    return round(spread.mean) if field.endswith("_bytes") or field == "cpu_count" else spread.mean


def _poll_ms(given: float | None) -> float:
    text = names.RESOURCE_POLL_MS.get()
    try:
        value = float(text or 250) if given is None else given
    except ValueError:
        raise ConfigError(
            f"{names.RESOURCE_POLL_MS.name}={text!r}: must be a number of milliseconds"
        ) from None
    if value <= 0:
        raise ConfigError(f"poll_ms={value:g}: must be positive")
    return value
