"""Telling in a run's records how the steps of each batch shape run, and why not better."""

from __future__ import annotations

from flodl.core.paths import ROOT
from flodl.engine.fallback import Mode, ReasonCode
from flodl.engine.stats import StepStats
from flodl.records import RecordTree

_ASKED_FOR = (ReasonCode.NO_GPU, ReasonCode.DISABLED)


class StepNotes:
    """Writes a line for each batch shape when its mode is new, and an alert for a fallback."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Mode, str]] = {}

    def tell(self, stats: StepStats, tree: RecordTree) -> None:
        """Write what has become known since the last time."""
        for found in stats.signatures:
            why = "" if found.reason is None else str(found.reason)
            if self._told.get(found.signature) == (found.mode, why):
                continue
            self._told[found.signature] = (found.mode, why)
            text = f"steps on {found.signature}: {found.mode}" + (f", {why}" if why else "")
            tree.log(ROOT, text)
            if found.reason is not None and found.reason.code not in _ASKED_FOR:
                tree.alert("capture", ROOT, text)
