"""Telling in a run's records how the steps of each batch shape run, and why not better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flodl.core.paths import ROOT
from flodl.engine.fallback import Mode, ReasonCode
from flodl.engine.stats import StepStats
from flodl.records import RecordTree
from flodl.records.events import EventKind

_ASKED_FOR = (ReasonCode.NO_GPU, ReasonCode.DISABLED)


@dataclass(frozen=True, slots=True)
class StepNote:
    """How the steps of one batch shape run now."""

    text: str
    is_captured: bool
    fallback: str | None
    """Why they run eager though they were not asked to, ``None`` where they were or do not."""

    def event(self) -> EventKind | None:
        """Return the event of a timeline, ``None`` for steps that are eager as they should be."""
        if not self.is_captured and self.fallback is None:
            return None
        return EventKind.graph_capture(ok=self.is_captured, reason=self.fallback)


class StepNotes:
    """Writes a line for each batch shape when its mode is new, and an alert for a fallback."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Mode, str]] = {}

    def fresh(self, stats: StepStats) -> list[StepNote]:
        """Return what has become known since the last time."""
        notes = []
        for found in stats.signatures:
            why = "" if found.reason is None else str(found.reason)
            if self._told.get(found.signature) == (found.mode, why):
                continue
            self._told[found.signature] = (found.mode, why)
            text = f"steps on {found.signature}: {found.mode}" + (f", {why}" if why else "")
            is_fallback = found.reason is not None and found.reason.code not in _ASKED_FOR
            notes.append(StepNote(text, found.mode != "eager", why if is_fallback else None))
        return notes

    def tell(
        self,
        stats: StepStats,
        tree: RecordTree,
        mark: Callable[[EventKind], object] | None = None,
    ) -> None:
        """Write what has become known since the last time.

        Args:
            stats: How the steps ran.
            tree: Where lines and alerts go.
            mark: Places events on a timeline, ``None`` where there is none.
        """
        for note in self.fresh(stats):
            tree.log(ROOT, note.text)
            if note.fallback is not None:
                tree.alert("capture", ROOT, note.text)
            if mark is not None and (event := note.event()) is not None:
                mark(event)
