"""What goes wrong in a simulated run, at which rank, and when."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from flodl.core.errors import ConfigError
from flodl.distributed.config.checks import is_number
from flodl.distributed.launch.threads.link import Killed

FaultKind = Literal[
    "kill",
    "exception",
    "oom",
    "nan",
    "stop",
    "slow",
    "drop_link",
    "dup_join",
    "bad_token",
    "controller_kill",
    "launcher_kill",
]
OF_PROCESSES = frozenset({"drop_link", "dup_join", "bad_token", "controller_kill", "launcher_kill"})
"""Faults of what threads do not have: sockets, and processes besides the ranks'."""
Profile = Callable[[float], float]
"""Milliseconds by the seconds since a rank's first batch: a device that throttles, say."""
_POINTS = ("step", "barrier", "reduce", "after_reduce", "checkpoint", "eval", "form")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        rank: Number of the member it happens to.
        at: When: ``"step:17"``, ``"barrier:3"``, ``"reduce:3"``, ``"after_reduce:3"`` (the window's
            number), ``"form:1"`` (the generation), ``"checkpoint"`` or ``"eval"``.
        kind: ``"kill"``: as kill -9. ``"exception"``: the user's step raises ``ValueError``.
            ``"oom"``: it runs out of memory. ``"nan"``: its loss is NaN. ``"stop"``: the rank
            freezes, for good or for some seconds. ``"slow"``: from then on each batch takes
            ``delay_ms`` more. With ranks that are processes also ``"drop_link"``: nothing passes
            between host and controller for some seconds. ``"dup_join"``: somebody else offers the
            rank's own place. ``"bad_token"``: somebody dials with a wrong token.
            ``"controller_kill"``: the controller is killed, and started again.
            ``"launcher_kill"``: the launcher is killed, and another one takes the run up.
        delay_ms: For ``"slow"``.
        seconds: For ``"stop"``: after which the rank goes on; ``None``: never. For
            ``"drop_link"``: how long.

    Raises:
        ConfigError: There is no such point or kind, or a link is dropped for no time.
    """

    rank: int
    at: str
    kind: FaultKind = "kill"
    delay_ms: float = 0.0
    seconds: float | None = None

    def __post_init__(self) -> None:
        point, _, number = self.at.partition(":")
        if point not in _POINTS or (number and not number.isdecimal()):
            raise ConfigError(f"at={self.at!r}: must be one of {', '.join(_POINTS)}, with a number")
        if self.kind not in get_args(FaultKind):
            raise ConfigError(
                f"kind={self.kind!r}: must be one of {', '.join(get_args(FaultKind))}"
            )
        if self.kind == "drop_link" and not is_number(self.seconds, above=0):
            raise ConfigError(f"seconds={self.seconds!r}: a link is dropped for a positive time")


class Delay:
    """How much longer the batches of one rank take, one after the other.

    Args:
        ms: Milliseconds, the same ones or by the seconds since the first batch.
        jitter: Share by which each is longer or shorter, at random.
        seed: Of that.
        clock: Monotonic seconds.

    Raises:
        ConfigError: The jitter is not from 0 to 1.
    """

    def __init__(
        self,
        ms: float | Profile,
        *,
        jitter: float = 0.0,
        seed: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= jitter <= 1:
            raise ConfigError(f"jitter={jitter!r}: must be from 0 to 1")
        self._ms, self._jitter, self._clock = ms, jitter, clock
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._started_at: float | None = None

    def next_s(self) -> float:
        """Return the seconds that the next batch takes longer."""
        now = self._clock()
        if self._started_at is None:
            self._started_at = now
        ms = self._ms(now - self._started_at) if callable(self._ms) else self._ms
        return max(0.0, ms / 1000 * (1 + self._jitter * self._random.uniform(-1, 1)))


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of all ranks of a run."""

    ms: Sequence[float | Profile]
    jitter: float = 0.0
    seed: int = 0

    def of(self, number: int) -> Delay:
        """Return the delay of a rank; each of its processes begins anew."""
        ms = self.ms[number] if number < len(self.ms) else 0.0
        return Delay(ms, jitter=self.jitter, seed=f"{self.seed}-{number}")


class Injector:
    """Lets the faults of one rank happen, each once, in the rank's own thread.

    Args:
        number: The rank.
        faults: All faults of the run.
        delay: How much longer each batch of this rank takes.
        happened: Faults that have happened, for all incarnations of the rank.
    """

    def __init__(
        self, number: int, faults: Sequence[Fault], delay: Delay, happened: set[Fault]
    ) -> None:
        self._faults = [fault for fault in faults if fault.rank == number]
        self._happened = happened
        self._delay = delay
        self._slower_s = 0.0
        self._steps = 0
        self.is_killed = False
        self.frozen = threading.Event()
        self.thaw = threading.Event()

    @property
    def is_frozen(self) -> bool:
        """Whether the rank is stopped, for a while or for good."""
        return self.frozen.is_set()

    def step(self) -> Fault | None:
        """Note that a batch begins; return what is to go wrong in it."""
        self._steps += 1
        seconds = self._delay.next_s() + self._slower_s
        if seconds:
            time.sleep(seconds)
        return self.reach(f"step:{self._steps}")

    def reach(self, point: str) -> Fault | None:
        """Note that the rank has come to a point; return the fault that user code must make.

        Raises:
            Killed: The rank dies here.
        """
        if self.is_killed:
            raise Killed
        base = point.partition(":")[0]
        for fault in self._faults:
            if fault not in self._happened and fault.at in (point, base):
                self._happened.add(fault)
                return self._happen(fault)
        return None

    def kill(self) -> None:
        """Have the rank die at the next point that it comes to."""
        self.is_killed = True
        self.thaw.set()

    def _happen(self, fault: Fault) -> Fault | None:
        if fault.kind == "kill":
            self.is_killed = True
            raise Killed
        if fault.kind == "stop":
            self.frozen.set()
            self.thaw.wait(fault.seconds)
            self.frozen.clear()
            if self.is_killed:
                raise Killed
        if fault.kind == "slow":
            self._slower_s += fault.delay_ms / 1000
        return fault
