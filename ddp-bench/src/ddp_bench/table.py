"""The table of results that ends a run: one line a cell, within 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_bench.gates import Gate
from ddp_bench.results import CellResult

_TITLES = ("model", "mode", "epochs", "loss", "eval", "floor", "result", "train s", "total s")
_LEFT = {"model", "mode", "floor", "result"}


def render_table(rows: Sequence[tuple[CellResult, Gate]]) -> str:
    """Return the table, with the reasons of failed cells below it."""
    cells = [_TITLES, *(_cells(result, gate) for result, gate in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_TITLES))]
    lines = [_line(row, widths) for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for result, gate in rows:
        lines += [f"{result.model}/{result.mode}: {reason}" for reason in gate.failures]
    return "\n".join(lines) + "\n"


def format_floor(floor: float | None, *, higher_is_better: bool) -> str:
    """Return a floor as ``>= 0.86``, or a dash where there is none."""
    return "-" if floor is None else f"{'>=' if higher_is_better else '<='} {floor:g}"


def _cells(result: CellResult, gate: Gate) -> tuple[str, ...]:
    return (
        result.model,
        result.mode,
        f"{len(result.epochs)}/{result.config.epochs}",
        _number(result.final.train_loss),
        _number(result.final.eval),
        format_floor(result.config.floor, higher_is_better=result.final.higher_is_better),
        gate.verdict,
        f"{result.wall.train_only_s:.1f}",
        f"{result.wall.total_s:.1f}",
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    columns = zip(_TITLES, row, widths, strict=True)
    parts = [text.ljust(w) if title in _LEFT else text.rjust(w) for title, text, w in columns]
    return "  ".join(parts).rstrip()
