"""How ranks that nobody launched together find each other."""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from datetime import timedelta
from typing import Self, final

from torch._C._distributed_c10d import Store, TCPStore

from flodl.core.errors import ConfigError
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.group import Fabric, GroupPlan
from flodl.distributed.collective.store import MemoryStore

__all__ = ["Rendezvous", "open_tcp_store"]


def open_tcp_store(
    host: str, port: int, world_size: int, *, is_server: bool, timeout_s: float = 60.0
) -> Store:
    """Return torch's own store, which opens a port that asks nobody who they are."""
    wait = timedelta(seconds=timeout_s)
    return TCPStore(host, port, world_size, is_server, timeout=wait, wait_for_workers=False)


@final
class Rendezvous:
    """A meeting place of ``world_size`` ranks; make it by `tcp`, `local` or `from_env`.

    Several models may be wrapped over one: all ranks wrap them in the same order.
    """

    def __init__(self, world_size: int, *, timeout_s: float = 60.0) -> None:
        if world_size < 1:
            raise ConfigError(f"world_size={world_size}: must be 1 or more")
        self.world_size = world_size
        self.timeout_s = timeout_s
        self.rank: int | None = None
        """This process's rank where the environment says it."""
        self._address = "127.0.0.1"
        self._memory: MemoryStore | None = None
        self._place: tuple[str, int] | None = None
        self._is_served_elsewhere = False
        self._tcp: Store | None = None
        self._wrapped: Counter[int] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def tcp(cls, host: str, port: int, world_size: int, *, timeout_s: float = 60.0) -> Self:
        """Meet at an address that rank 0 listens on; one object in each process."""
        meeting = cls(world_size, timeout_s=timeout_s)
        meeting._place = (host, port)
        return meeting

    @classmethod
    def local(cls, world_size: int, *, timeout_s: float = 60.0) -> Self:
        """Meet within this process; all ranks, each on its own thread, share this object."""
        meeting = cls(world_size, timeout_s=timeout_s)
        meeting._memory = MemoryStore()
        return meeting

    @classmethod
    def from_env(cls, *, timeout_s: float = 60.0) -> Self:
        """Meet as ``MASTER_ADDR``, ``MASTER_PORT``, ``RANK`` and ``WORLD_SIZE`` say (torchrun).

        Raises:
            ConfigError: One is missing or no number.
        """
        names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
        missing = [name for name in names if not os.environ.get(name)]
        if missing:
            raise ConfigError(
                f"Rendezvous.from_env(): {', '.join(missing)} not set",
                hint="start the script with torchrun, or use Rendezvous.tcp",
            )
        host, *texts = (os.environ[name] for name in names)
        try:
            port, rank, world_size = map(int, texts)
        except ValueError:
            raise ConfigError(
                f"MASTER_PORT, RANK, WORLD_SIZE are {', '.join(texts)}: must be whole numbers"
            ) from None
        meeting = cls(world_size, timeout_s=timeout_s)
        meeting._place = (host, port)
        meeting.rank = rank
        # torchrun serves the store itself, at the same address
        meeting._is_served_elsewhere = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return meeting

    def store(self, rank: int) -> Store:
        """Return the store as a rank sees it; rank 0 of `tcp` begins to serve it."""
        if self._memory is not None:
            return ControlStore(self._memory, self.timeout_s)
        assert self._place is not None
        with self._lock:
            if self._tcp is None:
                host, port = self._place
                is_server = rank == 0 and not self._is_served_elsewhere
                self._tcp = open_tcp_store(
                    host, port, self.world_size, is_server=is_server, timeout_s=self.timeout_s
                )
                self._address = _address_toward(host, port)
            return self._tcp

    def plan(self, rank: int, fabric: Fabric) -> GroupPlan:
        """Return the plan of a rank's next group; call `store` before.

        Raises:
            ConfigError: There is no such rank.
        """
        if not 0 <= rank < self.world_size:
            raise ConfigError(f"rank={rank}: must be one of 0 to {self.world_size - 1}")
        with self._lock:
            serial = self._wrapped[rank]
            self._wrapped[rank] += 1
        return GroupPlan(
            prefix=f"flodl/wrap/{serial}",
            rank=rank,
            size=self.world_size,
            fabric=fabric,
            address=self._address,
            timeout_s=self.timeout_s,
        )


def _address_toward(host: str, port: int) -> str:
    """Return the address of this machine from which ``host`` is reached; nothing is sent."""
    family, *_, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        address: str = probe.getsockname()[0]
    return address
