"""A network that is slow on purpose: each average is late by what its bytes would take."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from ddp_bench.errors import UsageError
from flodl.distributed.averaging import plane
from flodl.distributed.averaging.exchange import Exchange, Payload

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowLink:
    """What the way between two ranks adds to an average.

    Raises:
        UsageError: A value is negative, or the link carries nothing.
    """

    latency_ms: float = 0.0
    mbit_s: float | None = None
    """Megabits a second; ``None``: as many as there are."""

    def __post_init__(self) -> None:
        if self.latency_ms < 0:
            raise UsageError(f"latency {self.latency_ms:g} ms: expected 0 or more")
        if self.mbit_s is not None and self.mbit_s <= 0:
            raise UsageError(f"{self.mbit_s:g} Mbit/s: expected more than 0, or None")

    @property
    def is_slow(self) -> bool:
        """Whether it adds anything."""
        return self.latency_ms > 0 or self.mbit_s is not None

    def delay_s(self, nbytes: int) -> float:
        """Return the seconds by which an average is late in which a rank sends so many bytes."""
        carried = 0.0 if self.mbit_s is None else 8 * nbytes / (self.mbit_s * 1e6)
        return self.latency_ms / 1000 + carried

    def wait(self, nbytes: int) -> None:
        """Sleep as long as an average is late."""
        if self.is_slow:
            time.sleep(self.delay_s(nbytes))


def late_allreduce(link: SlowLink, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Average a bucket of gradients as DDP does, and be late: a hook of DDP.

    DDP looks at its annotations, which must therefore be no strings.
    """

    def be_late(done: torch.futures.Future[Tensor]) -> Tensor:
        averaged = done.value()
        link.wait(averaged.nbytes)
        return averaged

    whole = dist.group.WORLD
    assert whole is not None
    return allreduce_hook(whole, bucket).then(be_late)


@final
class LateExchange(Exchange):
    """An exchange of flodl whose averages are there later than they were made.

    Nobody sleeps: ranks that train on meanwhile do so here as well.

    Args:
        made: Makes the averages.
        link: Says how late they are.
        clock: Monotonic seconds.
    """

    def __init__(self, made: Exchange, link: SlowLink, clock: Clock = time.monotonic) -> None:
        self._made, self._link, self._clock = made, link, clock
        self._there_at: float | None = None

    def start(self, payload: Payload) -> None:
        """See ``Exchange``."""
        self._there_at = None
        self._made.start(payload)

    def advance(self) -> bool:
        """See ``Exchange``."""
        if self._there_at is None:
            if not self._made.advance():
                return False
            self._there_at = self._clock() + self._link.delay_s(self._made.bytes_out)
        if self._clock() < self._there_at:
            return False
        made = self._made
        self.result, self.bytes_out, self.bytes_in = made.result, made.bytes_out, made.bytes_in
        if hasattr(made, "sides"):  # an average of gradients sends nothing aside
            self.sides = made.sides
        return True

    def residual(self) -> Tensor | None:
        """See ``Exchange``."""
        return self._made.residual()

    def close(self) -> None:
        """See ``Exchange``."""
        self._made.close()


def slow_down_flodl(link: SlowLink) -> None:
    """Make every average of this process late, as those of other arms are."""
    form: Callable[..., Exchange] = vars(plane)["make_exchange"]

    def late(*given: Any, **options: Any) -> Exchange:
        return LateExchange(form(*given, **options), link)

    vars(plane)["make_exchange"] = late
