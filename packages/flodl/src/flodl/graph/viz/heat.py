"""Colors for times: green for nothing, yellow for half, red for the slowest node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flodl.graph.profiling import Profile

_GREEN, _YELLOW, _RED = (0x27, 0xAE, 0x60), (0xF3, 0x9C, 0x12), (0xE7, 0x4C, 0x3C)


def heat_fills(profile: Profile) -> dict[str, str]:
    """Return a color for each node, by its share of the slowest node's time."""
    slowest = max((node.seconds for node in profile.nodes), default=0.0)
    return {node.id: heat(node.seconds / slowest if slowest else 0.0) for node in profile.nodes}


def heat(share: float) -> str:
    """Return the color of a share from 0 to 1, linear between the three."""
    low, high, part = (
        (_GREEN, _YELLOW, share * 2) if share < 0.5 else (_YELLOW, _RED, share * 2 - 1)
    )
    mixed = (round(a + (b - a) * part) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)
