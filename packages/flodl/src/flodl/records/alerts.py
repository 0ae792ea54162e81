"""Alerts: what happened out of the ordinary, told at once, and repeats told in bulk."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

from flodl.records.record import Severity

COLLAPSE_S = 10.0
MAX_LIVE = 200
_OVERFLOW = ("overflow", "root")

SEVERITIES: dict[str, Severity] = {
    "rank_lost": "critical",
    "control_drop": "critical",
    "nonfinite": "warn",
    "drift": "warn",
    "stalled": "warn",
    "io": "warn",
    "overflow": "warn",
    "rank_joined": "info",
    "controller_restarted": "warn",
    "checkpoint_failed": "warn",
    "quarantine": "warn",
    "oom_split": "warn",
    "capture": "warn",
}


class Occurrence(NamedTuple):
    """What one event record tells: ``times`` new occurrences, ``total`` so far."""

    name: str
    path: str
    severity: Severity
    detail: str
    times: int
    total: int


@dataclass(slots=True)
class _Live:
    severity: Severity
    detail: str
    first_ms: int
    last_ms: int
    total: int
    pending: int
    told_at: float


class AlertLane:
    """Decides which occurrences become records now, and which ride along with the next.

    The first occurrence of a class at a path is told at once. Repeats within ten seconds are
    counted and told together, so counts always add up to the true number.
    """

    def __init__(self, *, limit: int = MAX_LIVE) -> None:
        self._limit = limit
        self._live: OrderedDict[tuple[str, str], _Live] = OrderedDict()

    def occur(
        self, name: str, path: str, severity: Severity, detail: str, *, now: float, ts: int
    ) -> list[Occurrence]:
        """Take in one occurrence and return what is to be told now.

        Args:
            name: Class of the alert.
            path: Where it happened.
            severity: How bad it is.
            detail: Text for people.
            now: Seconds, monotonic.
            ts: Unix milliseconds.
        """
        key = (name, path)
        live = self._live.get(key)
        told = []
        if live is None:
            if len(self._live) >= self._limit:
                told = self._make_room(key, now=now, ts=ts)
            live = _Live(severity, detail, ts, ts, 0, 0, -COLLAPSE_S + now)
            self._live[key] = live
        self._live.move_to_end(key)
        live.detail, live.severity, live.last_ms = detail, severity, ts
        live.total += 1
        live.pending += 1
        if now - live.told_at >= COLLAPSE_S:
            told.append(_tell(key, live, now))
        return told

    def due(self, now: float, *, everything: bool = False) -> list[Occurrence]:
        """Return absorbed repeats whose ten seconds are over, or all that are left."""
        return [
            _tell(key, live, now)
            for key, live in self._live.items()
            if live.pending and (everything or now - live.told_at >= COLLAPSE_S)
        ]

    def live(self) -> list[dict[str, Any]]:
        """Return the live alerts as JSON objects, least recently active first."""
        return [
            {
                "class": name,
                "path": path,
                "sev": live.severity,
                "detail": live.detail,
                "first_ts": live.first_ms,
                "ts": live.last_ms,
                "total": live.total,
            }
            for (name, path), live in self._live.items()
        ]

    def restore(self, event: dict[str, Any]) -> None:
        """Take in an event record of an earlier run, without telling it again."""
        key = (str(event["class"]), str(event["path"]))
        live = self._live.setdefault(
            key, _Live(event["sev"], event["detail"], event["ts"], event["ts"], 0, 0, 0.0)
        )
        live.total, live.last_ms = int(event["total"]), int(event["ts"])
        live.severity, live.detail = event["sev"], event["detail"]
        self._live.move_to_end(key)
        while len(self._live) > self._limit:
            self._live.popitem(last=False)

    def _make_room(self, newcomer: tuple[str, str], *, now: float, ts: int) -> list[Occurrence]:
        if newcomer == _OVERFLOW:
            return self._evict_to(self._limit - 1, now)
        # the overflow alert takes a place of its own beside the newcomer's
        places = 1 if _OVERFLOW in self._live else 2
        told = self._evict_to(self._limit - places, now)
        detail = f"more than {self._limit} live alerts; the least recently active are dropped"
        return told + self.occur(*_OVERFLOW, "warn", detail, now=now, ts=ts)

    def _evict_to(self, size: int, now: float) -> list[Occurrence]:
        told = []
        for key in [key for key in self._live if key != _OVERFLOW]:
            if len(self._live) <= size:
                break
            evicted = self._live.pop(key)
            if evicted.pending:
                told.append(_tell(key, evicted, now))
        return told


def _tell(key: tuple[str, str], live: _Live, now: float) -> Occurrence:
    times, live.pending, live.told_at = live.pending, 0, now
    return Occurrence(*key, live.severity, live.detail, times, live.total)
