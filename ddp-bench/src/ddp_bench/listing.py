"""The list of models and modes, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddp_bench.definition import ModelDef
from ddp_bench.modes import MODES
from ddp_bench.table import format_floor


def list_text(models: Mapping[str, ModelDef]) -> str:
    """Return a line for each model and mode; modes that cannot run stand under the reason."""
    sections: list[tuple[str, Sequence[tuple[str, ...]]]] = [
        ("models (mini set-up)", [(name, *_columns(d)) for name, d in models.items()])
    ]
    for reason in dict.fromkeys(mode.unavailable for mode in MODES):
        title = "modes" if reason is None else f"modes {reason}"
        rows = [(mode.name, mode.description) for mode in MODES if mode.unavailable == reason]
        sections.append((title, rows))
    return "\n".join(f"{title}\n{_aligned(rows)}" for title, rows in sections)


def list_document(models: Mapping[str, ModelDef]) -> dict[str, Any]:
    """Return the list as plain values."""
    return {
        "schema": 1,
        "models": [
            {
                "name": name,
                "description": definition.description,
                "metric": definition.metric,
                "higher_is_better": definition.higher_is_better,
                "mini": {
                    "data": definition.mini.data.name,
                    "epochs": definition.mini.epochs,
                    "batch_size": definition.mini.batch_size,
                    "floor": definition.mini.floor,
                },
            }
            for name, definition in models.items()
        ],
        "modes": [
            {
                "name": mode.name,
                "description": mode.description,
                "available": mode.unavailable is None,
                "reason": mode.unavailable,
            }
            for mode in MODES
        ],
    }


def _columns(definition: ModelDef) -> tuple[str, str]:
    mini = definition.mini
    floor = format_floor(mini.floor, higher_is_better=definition.higher_is_better)
    return definition.description, f"{mini.epochs} epochs to {definition.metric} {floor}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in rows)
    return "".join("  " + "  ".join(f"{c:{w}}" for c, w in line).rstrip() + "\n" for line in lines)
