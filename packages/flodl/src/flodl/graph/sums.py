"""Running sums of observed tags, kept where the values are: in place, so that steps replay them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flodl.core.errors import NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "max": torch.max,
    "min": torch.min,
    "norm": torch.linalg.vector_norm,
}
"""How a value of several elements becomes one number; ``norm`` is the L2 norm."""


class Sums:
    """For each observed tag the sum of its reduced values, and how many there were."""

    def __init__(self) -> None:
        self._pairs: dict[str, torch.Tensor] = {}

    def begin(self, tags: Iterable[str], device: torch.device) -> None:
        """Observe these tags and no others; what was summed of them so far stays."""
        self._pairs = {tag: self._pairs.get(tag, _nothing(device)) for tag in tags}

    def move(self, device: torch.device) -> None:
        """Keep the sums where values will come from."""
        if device.type != "meta":
            self._pairs = {tag: pair.to(device) for tag, pair in self._pairs.items()}

    def fresh(self) -> Sums:
        """Return sums of the same tags over nothing yet."""
        other = Sums()
        other._pairs = {tag: torch.zeros_like(pair) for tag, pair in self._pairs.items()}
        return other

    def add(self, tag: str, value: object, reduce: str) -> None:
        """Add a value that a tag had in a call; ``None`` is no value.

        Raises:
            NodeError: It is no tensor, or an empty one.
        """
        if value is None:
            return
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            kind = "an empty tensor" if isinstance(value, torch.Tensor) else type(value).__name__
            raise NodeError(f"observe({tag!r}): {kind} cannot be reduced to one number")
        pair = self._pairs[tag]
        if pair.device != value.device:
            pair = self._pairs[tag] = pair.to(value.device)
        with torch.no_grad():
            number = reduced(value, reduce)
            pair[0].add_(number.to(pair.dtype))
            pair[1].add_(1)

    def take(self, tags: Sequence[str] | None = None) -> dict[str, tuple[float, int]]:
        """Return sums and counts so far, and begin anew; waits for each device once."""
        chosen = (
            self._pairs if tags is None else {t: self._pairs[t] for t in tags if t in self._pairs}
        )
        by_device: dict[torch.device, list[str]] = {}
        for tag, pair in chosen.items():
            by_device.setdefault(pair.device, []).append(tag)
        taken: dict[str, tuple[float, int]] = {}
        for together in by_device.values():
            numbers = torch.stack([chosen[name] for name in together]).tolist()
            taken |= {
                name: (total, int(count))
                for name, (total, count) in zip(together, numbers, strict=True)
                if count
            }
        for pair in chosen.values():
            pair.zero_()  # in place: a captured step goes on adding to it
        return {tag: taken[tag] for tag in chosen if tag in taken}


def reduced(value: torch.Tensor, reduce: str) -> torch.Tensor:
    """Return a value as one number, without gradients; one element is taken as it is."""
    value = value.detach()
    if value.numel() == 1:
        return value.reshape(())
    return REDUCTIONS[reduce](value if value.is_floating_point() else value.double())


def _nothing(device: torch.device) -> torch.Tensor:
    dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.zeros(2, dtype=dtype, device=device)
