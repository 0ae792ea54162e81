"""The lines of a run as people read them, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flodl.core.units import format_bytes, format_eta, format_metric

_SCALED_UNITS = ("KB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, kw_only=True, slots=True)
class VramReading:
    """GPU memory and utilization over the devices of a run."""

    used_bytes: int
    total_bytes: int
    util_percent: float | None
    """``None`` where no device tells it."""

    @property
    def spill_bytes(self) -> int:
        """Bytes allocated beyond the devices' own memory."""
        return max(0, self.used_bytes - self.total_bytes)


class ConsoleLines:
    """Formats epoch lines and the summary of one run.

    Keeps the width of the last estimate, so that the line without one stays in column.

    Args:
        total_epochs: Number of epochs of the run; sets the width of the epoch column.
    """

    def __init__(self, total_epochs: int) -> None:
        self.total = total_epochs
        """May grow while the run goes on."""
        self._last_eta_width = 0

    def epoch(
        self,
        epoch: int,
        duration: float,
        metrics: Mapping[str, float],
        *,
        eta: float | None,
        vram: VramReading | None = None,
    ) -> str:
        """Return the line of one epoch.

        Args:
            epoch: 0-based.
            duration: Seconds.
            metrics: Values by name, in the order they are shown.
            eta: Seconds left, or ``None`` on the last line.
            vram: Reading to append, or ``None`` where nothing was measured.
        """
        text = self.epoch_text(epoch, duration, metrics, eta=eta)
        if eta is None:
            gap = self._last_eta_width + 3 if self._last_eta_width else 2
        else:
            gap = 2
            self._last_eta_width = len(f"  ETA {format_eta(eta)}")
        return f"  {text}" if vram is None else f"  {text}{' ' * gap}{_vram_text(vram)}"

    def epoch_text(
        self, epoch: int, duration: float, metrics: Mapping[str, float], *, eta: float | None
    ) -> str:
        """Return an epoch's text without indent and VRAM, as logs keep it."""
        width = len(str(self.total))
        shown = "".join(f"  {name}={format_metric(value)}" for name, value in metrics.items())
        left = "" if eta is None else f"  ETA {format_eta(eta)}"
        return f"epoch {epoch + 1:>{width}}/{self.total}{shown}  [{format_eta(duration)}{left}]"

    def summary(self, status: str, duration: float, metrics: Mapping[str, float]) -> str:
        """Return the closing line: status, duration in seconds, and the last metrics."""
        shown = "".join(f"  | {name}: {format_metric(v)}" for name, v in metrics.items())
        return f"  training {status} in {format_eta(duration)}{shown}"


def _vram_text(vram: VramReading) -> str:
    used, total = _shared_unit(vram.used_bytes, vram.total_bytes)
    spill = f" +{format_bytes(vram.spill_bytes)} spill" if vram.spill_bytes else ""
    util = "" if vram.util_percent is None else f" ({vram.util_percent:.0f}%)"
    return f"VRAM: {used}/{total}{util}{spill}"


def _shared_unit(used: int, total: int) -> tuple[str, str]:
    text = format_bytes(total)
    number, unit = text.split(" ")
    if unit == "B":
        return str(used), text
    scaled = used / 1024 ** (_SCALED_UNITS.index(unit) + 1)
    return (f"{scaled:.1f}" if "." in number else f"{scaled:.0f}"), text
