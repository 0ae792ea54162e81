"""Text for durations, byte counts and metric values, the same wherever people read them."""

from __future__ import annotations

import math

_BYTE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def format_eta(seconds: float) -> str:
    """Return a duration as people say it: ``420ms``, ``1.5s``, ``4m 32s``, ``3h 12m``.

    Works on whole milliseconds: flooring floats would turn 1.2 s into ``1.1s``. Negative and
    non-finite values give an em dash.
    """
    if not math.isfinite(seconds) or seconds < 0:
        return "—"
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        whole, tenths = milliseconds // 1000, milliseconds % 1000 // 100
        return f"{whole}.{tenths}s" if tenths else f"{whole}s"
    total = milliseconds // 1000
    if total < 3600:
        return f"{total // 60}m {total % 60:02d}s"
    return f"{total // 3600}h {total % 3600 // 60:02d}m"


def format_bytes(count: float) -> str:
    """Return a byte count in 1024-based units: ``512 B``, ``500 KB``, ``2.1 GB``.

    One decimal from gigabytes on, none below.
    """
    value = float(count)
    for unit in _BYTE_UNITS[:3]:
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    for unit in _BYTE_UNITS[3:-1]:
        if value < 1024:
            return f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_BYTE_UNITS[-1]}"


def format_metric(value: float) -> str:
    """Return a metric with four decimals below 100, two above, an exponent below 0.001."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.2f}"
