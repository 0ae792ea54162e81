"""Every deadline of a run over several ranks, in seconds, in one place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from flodl.core.errors import ConfigError
from flodl.distributed.config.checks import is_number, positive, raise_for


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """Seconds that each side waits before it acts on silence.

    Raises:
        ConfigError: A value is not a positive number, or suspect, lease and dead are out of order.
    """

    heartbeat: float = 2.0
    suspect: float = 10.0
    dead: float = 30.0
    host_lease: float = 25.0
    """A host that had no beat acknowledged for so long quiesces its ranks by itself."""
    fence_ack: float = 5.0
    reduce_floor: float = 30.0
    snapshot: float = 5.0
    join_window: float = 300.0
    join_cap: float = 600.0
    drain: float = 30.0
    terminate: float = 10.0
    """From SIGTERM to SIGKILL."""
    join_handshake: float = 10.0
    boot: float = 180.0
    """A rank's import and build."""
    formation: float = 60.0
    barrier_floor: float = 60.0
    stall: float = 300.0
    """A rank that is alive and takes no step."""
    eval_callback: float = 1800.0
    checkpoint_callback: float = 600.0
    ping: float = 5.0
    reconnect_cap: float = 5.0
    controller_grace: float = 120.0
    quorum_wait: float = 600.0

    def __post_init__(self) -> None:
        names = [field.name for field in dataclasses.fields(self)]
        problems = [text for name in names for text in positive(name, getattr(self, name))]
        if not problems and not self.suspect < self.host_lease < self.dead:
            problems.append(
                f"suspect={self.suspect:g}, host_lease={self.host_lease:g}, dead={self.dead:g}: "
                "must rise, or a host's ranks go on after their work was given away"
            )
        raise_for(problems)

    def barrier(self, predicted_window: float) -> float:
        """Return seconds to wait for all ranks at a window's end: 20 predicted windows or more."""
        return max(self.barrier_floor, 20 * predicted_window)

    def reduce(self, ema: float) -> float:
        """Return seconds that a reduce may take: 10 times its smoothed duration or more."""
        return max(self.reduce_floor, 10 * ema)

    def scaled(self, factor: float) -> Timeouts:
        """Return these timeouts, each multiplied by ``factor``.

        Raises:
            ConfigError: The factor is not a positive number.
        """
        if not is_number(factor, above=0):
            raise ConfigError(f"timeout scale {factor!r}: must be a positive number")
        return Timeouts(
            **{name: value * factor for name, value in dataclasses.asdict(self).items()}
        )

    def scaled_by(self, text: str | None) -> Timeouts:
        """Return these timeouts scaled by the value of ``FLODL_NET_TIMEOUT_SCALE``.

        Args:
            text: The variable's value; ``None`` where it is not set.

        Raises:
            ConfigError: The text is not a positive number.
        """
        if text is None:
            return self
        try:
            factor = float(text)
        except ValueError:
            raise ConfigError(
                f"FLODL_NET_TIMEOUT_SCALE={text!r}: must be a positive number"
            ) from None
        return self.scaled(factor)
