"""What an average costs, by the way it travels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Travel = Literal["measured", "ring", "star", "relay"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """How ranks are spread, and what their links can do."""

    ranks: int
    ranks_per_host: int = 8
    control_latency: float = 0.0005
    """Seconds of one control message, one way."""

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.ranks // self.ranks_per_host)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceCost:
    """Seconds and bytes of one average.

    ``M`` bytes over links of ``B`` bytes/s and ``L`` s among ``W`` ranks on ``H`` hosts:
    ring ``2(W-1)/W * M/B + 2(W-1)L``, star ``2*W*M/B + 2L``, relay ``2*H*M/B + 4L``. The measured
    one, ``8 ms + 0.5 ms * log2 W``, is that of a small model on a fast fabric.
    """

    travel: Travel = "measured"
    payload_bytes: int = 4 << 20
    bandwidth: float = 1.25e9
    latency: float = 5e-5
    is_bf16: bool = False

    def seconds(self, world: int, hosts: int) -> float:
        """Return how long one average takes."""
        if world == 1:
            return 0.0
        time = (self.payload_bytes / (2 if self.is_bf16 else 1)) / self.bandwidth
        return _SECONDS[self.travel](world, hosts, time, self.latency)

    def controller_bytes(self, world: int, hosts: int) -> float:
        """Return the bytes of one average that pass through the controller."""
        size = self.payload_bytes / (2 if self.is_bf16 else 1)
        return {"star": 2 * world * size, "relay": 2 * hosts * size}.get(self.travel, 0.0)


def _measured(world: int, hosts: int, time: float, latency: float) -> float:  # noqa: ARG001
    return 0.008 + 0.0005 * math.log2(world)


def _ring(world: int, hosts: int, time: float, latency: float) -> float:  # noqa: ARG001
    return 2 * (world - 1) / world * time + 2 * (world - 1) * latency


def _star(world: int, hosts: int, time: float, latency: float) -> float:  # noqa: ARG001
    return 2 * world * time + 2 * latency


def _relay(world: int, hosts: int, time: float, latency: float) -> float:  # noqa: ARG001
    return 2 * hosts * time + 4 * latency


_SECONDS: dict[Travel, Callable[[int, int, float, float], float]] = {
    "measured": _measured,
    "ring": _ring,
    "star": _star,
    "relay": _relay,
}
