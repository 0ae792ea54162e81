"""What a run tells of itself while it goes on, and what it amounted to in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flodl.distributed.controller.ledger.epoch import EpochAccount


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """What a run amounted to."""

    accounting: tuple[EpochAccount, ...] = ()
    deaths: tuple[Mapping[str, Any], ...] = ()
    """Each with ``rank``, ``host``, ``cause``, ``epoch`` and what else is known."""
    generations: tuple[Mapping[str, Any], ...] = ()
    """Every set of ranks that was formed, in order."""
    windows: tuple[Mapping[str, Any], ...] = ()
    """Every average that was made, in order."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """All that the controller tells, as plain values."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> RunReport:
        """Return the report that a controller's last word holds."""
        accounts: Sequence[Mapping[str, int]] = told.get("accounting", ())
        return cls(
            accounting=tuple(EpochAccount(**each) for each in accounts),
            deaths=tuple(told.get("deaths", ())),
            generations=tuple(told.get("generations", ())),
            windows=tuple(told.get("windows", ())),
            details=dict(told),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """What a run does now."""

    state: str
    """``waiting``, ``staging``, ``forming``, ``training``, ``reconfiguring``, ``draining``,
    ``saving``, ``done`` or ``failed``."""
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What ``/state.json`` says besides; empty for a run in this process."""
