"""Which rank's pace sets the window: the slowest, but not a new one for each small change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COHORT_BAND = 0.15
DOMINANCE_MARGIN = 0.10


def elect_anchor(
    members: Sequence[str], speeds: Mapping[str, float | None], current: str | None
) -> str | None:
    """Return the member that anchors the window.

    The cohort are those within 15 % of the slowest. A current anchor in it stays, unless one is
    slower by more than 10 %; otherwise the first of the cohort becomes the anchor.

    Args:
        members: All members, by rank.
        speeds: Smoothed milliseconds of each; ``None`` while unknown.
        current: The anchor so far, or ``None``.
    """
    known = {member: ms for member in members if (ms := speeds.get(member)) is not None}
    if not known:
        return current
    slowest = max(known.values())
    cohort = [member for member in known if known[member] >= (1 - COHORT_BAND) * slowest]
    if current not in cohort:
        return cohort[0]
    challenger = max(cohort, key=lambda member: known[member])
    dominates = known[challenger] > known[current] * (1 + DOMINANCE_MARGIN)
    return challenger if dominates else current
