"""Metrics over epochs as an interactive page, a table and a log."""

from __future__ import annotations

import csv
import html
import io
import json
import math
from importlib import resources
from typing import TYPE_CHECKING

from flodl.core.units import format_eta, format_metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem; color: #2c3e50; background: #fff; }}
h1 {{ font-size: 1.2rem; }} .uplot, #chart {{ width: 100%; }}
.u-legend {{ text-align: left; }}
</style></head><body><h1>{title}</h1><div id="chart"></div>
<script>{script}</script>
<script>
const data = {data};
const colors = ["#2980b9","#c0392b","#27ae60","#8e44ad","#f39c12","#16a085","#d35400","#7f8c8d"];
const place = document.getElementById("chart");
const digits = (u, v) => v == null ? "-" : Number(v.toPrecision(6)).toString();
const series = [{{ label: "epoch" }}].concat(data.names.map((name, i) => ({{
  label: name, stroke: colors[i % colors.length], width: 2, spanGaps: false,
  points: {{ show: data.epochs.length < 60, size: 5 }}, value: digits,
}})));
const size = () => ({{ width: place.clientWidth, height: Math.max(280, innerHeight - 220) }});
const plot = new uPlot({{ ...size(), series, scales: {{ x: {{ time: false }} }},
  axes: [{{ label: "epoch", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] }},
    {{ size: 70, label: "{unit}" }}],
  cursor: {{ focus: {{ prox: 24 }} }}, focus: {{ alpha: 0.35 }},
}}, [data.epochs].concat(data.values), place);
addEventListener("resize", () => plot.setSize(size()));
</script></body></html>
"""


def page(title: str, series: Mapping[str, Sequence[float]], unit: str = "") -> str:
    """Return one file that shows curves without a network: legend, tooltip, zoom by dragging."""
    assets = resources.files("flodl.core.assets")
    longest = max(map(len, series.values()), default=0)
    data = {
        "names": list(series),
        "epochs": list(range(1, longest + 1)),
        "values": [
            [*(value if math.isfinite(value) else None for value in values)]
            + [None] * (longest - len(values))
            for values in series.values()
        ],
    }
    # "<" could end the script element from within a name.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return _PAGE.format(
        title=html.escape(title),
        unit=unit,
        style=assets.joinpath("uPlot.min.css").read_text(encoding="utf-8"),
        script=assets.joinpath("uPlot.iife.min.js").read_text(encoding="utf-8"),
        data=text,
    )


def table(series: Mapping[str, Sequence[float]]) -> str:
    """Return comma-separated values, one line an epoch, in full precision."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["epoch", *series])
    for epoch in range(max(map(len, series.values()), default=0)):
        cells = [repr(v[epoch]) if epoch < len(v) else "" for v in series.values()]
        writer.writerow([epoch + 1, *cells])
    return out.getvalue()


def log_lines(
    series: Mapping[str, Sequence[float]], total_epochs: int, seconds: float
) -> list[str]:
    """Return one line an epoch: ``epoch   1  loss=1.5264  [49ms  ETA 4.8s]``.

    Args:
        series: Values by name.
        total_epochs: How many epochs the run has; 0 leaves the remaining time out.
        seconds: Mean duration of an epoch.
    """
    count = max(map(len, series.values()), default=0)
    lines = []
    for epoch in range(count):
        values = "  ".join(
            f"{name}={format_metric(numbers[epoch])}"
            for name, numbers in series.items()
            if epoch < len(numbers)
        )
        left = total_epochs - epoch - 1
        eta = f"  ETA {format_eta(left * seconds)}" if left > 0 else ""
        lines.append(f"epoch {epoch + 1:3d}  {values}  [{format_eta(seconds)}{eta}]")
    return lines
