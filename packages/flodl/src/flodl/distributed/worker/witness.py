"""What a rank's device and host do, told to the controller twice a second from a thread.

Only the lowest living rank of a host tells of the host, so that nothing is counted twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from flodl.core.log import warn_once
from flodl.core.resources import host_body
from flodl.device.sampler import ResourceSampler
from flodl.distributed.protocol.messages import TelemetryRecord
from flodl.records.telemetry import RankTelemetry, rank_resources

if TYPE_CHECKING:
    from flodl.distributed.cluster.role import RunPlace
    from flodl.distributed.protocol.messages import Message, World

TELL_S = 0.5
_logger = logging.getLogger(__name__)


class Witness:
    """Watches what one rank computes on, beside its training.

    Nothing is told before :meth:`meet` has said who is there, and nothing at all on the CPU by
    ranks that have no host to tell of.

    Args:
        place: The rank's place in the run.
        send: Sends a message to the controller; called in the thread of the witness.
        label: Name of the device for people.
        sampler: What reads the host and its devices; ``None`` makes one.
        pause_s: Seconds between two messages.
    """

    def __init__(
        self,
        place: RunPlace,
        send: Callable[[Message], object],
        *,
        label: str | None = None,
        sampler: ResourceSampler | None = None,
        pause_s: float = TELL_S,
    ) -> None:
        self._place = place
        self._send = send
        self._label = label
        self._device = place.device_index if place.device_index >= 0 else None
        self._sampler = _sampler_of(self._device) if sampler is None else sampler
        self._reader = self._sampler.reader()
        self._pause_s = pause_s
        self._tells_host = False
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def meet(self, world: World) -> None:
        """Take note of the ranks of a generation: the lowest one of a machine tells of it."""
        own = machine_of(self._place.host)
        ranks = {p.uid: p.rank for p in world.members if machine_of(p.host) == own}
        self._tells_host = bool(ranks) and ranks.get(self._place.uid) == min(ranks.values())
        if self._thread is None and not self._is_over.is_set():
            self._thread = threading.Thread(target=self._run, name="flodl-witness", daemon=True)
            self._thread.start()

    def telemetry(self) -> RankTelemetry | None:
        """Return what was seen since the last call, ``None`` where that is nothing to tell."""
        sample, spreads = self._reader.read()
        res = {} if self._device is None else rank_resources(sample, spreads, device=self._device)
        host_res = host_body(sample) if self._tells_host else {}
        if not res and not host_res:
            return None
        return RankTelemetry(
            rank=self._place.number,
            res=res,
            host_res=host_res,
            label=self._label,
            device=self._device,
        )

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        told_at = time.monotonic()
        while not self._is_over.wait(self._sampler.poll_ms / 1000):
            if self._device is None and not self._tells_host:
                continue
            try:
                self._sampler.poll()
                if time.monotonic() - told_at >= self._pause_s:
                    told_at = time.monotonic()
                    self._tell()
            except Exception as error:  # noqa: BLE001 (an observer must not end what it observes)
                warn_once(_logger, "this rank's resources cannot be told: %s", error)

    def _tell(self) -> None:
        telemetry = self.telemetry()
        if telemetry is not None:
            self._send(TelemetryRecord(path="", values=telemetry.body()))


def machine_of(host: str) -> str:
    """Return the machine of a host's name: a rank that another launcher started is its own host.

    Such a host goes by ``<machine>.<local rank>``.
    """
    machine, _, ordinal = host.rpartition(".")
    return machine if machine and ordinal.isdecimal() else host


def _sampler_of(device: int | None) -> ResourceSampler:
    return ResourceSampler(() if device is None else (device,))
