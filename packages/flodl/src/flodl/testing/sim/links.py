"""Links that are slow on purpose: what an average takes longer because of its network."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

from torch import Tensor
from torch._C._distributed_c10d import Store

from flodl.core.errors import ConfigError
from flodl.distributed.averaging import plane
from flodl.distributed.averaging.assembly import Assembly
from flodl.distributed.averaging.exchange import Exchange, Payload
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.patience import Interrupt

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowLink:
    """The network between ranks: each average takes this much longer, and nobody computes for it.

    Attributes:
        latency_ms: Of each average.
        mbit_s: Megabits a second that a rank sends, and receives at the same time.

    Raises:
        ConfigError: A number is out of range.

    Example:
        >>> link = SlowLink(latency_ms=20.0, mbit_s=100.0)
        >>> round(link.delay_s(1_250_000), 3)
        0.12
    """

    latency_ms: float = 0.0
    mbit_s: float = math.inf

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_ms) and self.latency_ms >= 0):
            raise ConfigError(f"latency_ms={self.latency_ms!r}: must be 0 or more")
        if not self.mbit_s > 0:
            raise ConfigError(f"mbit_s={self.mbit_s!r}: must be above 0")

    def delay_s(self, size: int) -> float:
        """Return the seconds that a payload of ``size`` bytes takes."""
        return self.latency_ms / 1000 + 8 * size / (1e6 * self.mbit_s)

    @contextlib.contextmanager
    def applied(self, clock: Clock = time.monotonic) -> Iterator[None]:
        """Slow every average of generations that form within the block, in this process.

        For ranks that are processes, let the script run its ``Trainer`` within the block: it is
        run again in each of them.

        Args:
            clock: Monotonic seconds.
        """

        def slow(
            plan: Assembly, store: Store, graveyard: Graveyard, *, interrupted: Interrupt
        ) -> Exchange:
            return SlowExchange(fast(plan, store, graveyard, interrupted=interrupted), self, clock)

        fast: Callable[..., Exchange] = vars(plane)["make_exchange"]
        vars(plane)["make_exchange"] = slow
        try:
            yield
        finally:
            vars(plane)["make_exchange"] = fast


@final
class SlowExchange(Exchange):
    """An exchange whose result comes later, by what the payload takes on a link.

    Args:
        exchange: What averages.
        link: The link; a rank alone sends nothing over it.
        clock: Monotonic seconds.
    """

    def __init__(self, exchange: Exchange, link: SlowLink, clock: Clock = time.monotonic) -> None:
        self._exchange, self._link, self._clock = exchange, link, clock
        self._due: float | None = None

    def start(self, payload: Payload) -> None:
        """See `Exchange`."""
        self._due = None
        self._exchange.start(payload)

    def advance(self) -> bool:
        """See `Exchange`; the result is held back until it would have arrived."""
        exchange = self._exchange
        if self._due is None:
            if not exchange.advance():
                return False
            self.result = exchange.result
            if hasattr(exchange, "sides"):  # an average of gradients may send nothing aside
                self.sides = exchange.sides
            self.bytes_out, self.bytes_in = exchange.bytes_out, exchange.bytes_in
            size = max(self.bytes_out, self.bytes_in)
            self._due = self._clock() + (self._link.delay_s(size) if size else 0.0)
        return self._clock() >= self._due

    def residual(self) -> Tensor | None:
        """See `Exchange`."""
        return self._exchange.residual()

    def close(self) -> None:
        """See `Exchange`."""
        self._exchange.close()
