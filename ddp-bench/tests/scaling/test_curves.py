from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ddp_bench.scaling.curve_bars import Point, judge, judge_reality, slope
from ddp_bench.scaling.curve_chart import chart
from ddp_bench.scaling.curves import SPEEDS, TRAVELS, cells, main, run_cells, set_hash

BATCHES = 40


@pytest.fixture(scope="module")
def points() -> list[Point]:
    return run_cells(cells((2, 8, 16), BATCHES), processes=1)


def test_there_is_a_point_for_every_size_travel_and_speeds(points: list[Point]) -> None:
    assert len(points) == 3 * len(TRAVELS) * len(SPEEDS)
    assert [point.world for point in points] == sorted((p.world for p in points), reverse=True)
    dying = [point for point in points if point.result["deaths"]]
    assert {point.speeds for point in dying} == {"1% die"}
    assert all(0 < point.efficiency <= 1 for point in points)


def test_the_same_set_has_the_same_hash(points: list[Point]) -> None:
    again = run_cells(cells((2, 8, 16), BATCHES), processes=1)
    assert set_hash(again) == set_hash(points)
    assert set_hash(points[1:]) != set_hash(points)


def test_a_slope_is_the_power_that_a_value_grows_with(points: list[Point]) -> None:
    assert slope(points, lambda point: float(point.world) ** 1.5) == pytest.approx(1.5)


def test_sound_curves_hold_and_each_wrong_one_misses_its_bar(points: list[Point]) -> None:
    verdicts = judge(points, wall_s=10.0, is_same=True)
    by_time = ("slope of the time", "controller time")
    missed = [each.bar for each in verdicts if not each.holds and not each.bar.startswith(by_time)]
    assert missed == []
    held = {each.bar: each.holds for each in judge(points, wall_s=301.0, is_same=False)}
    assert not held["seconds for the set"]
    assert not held["the same twice"]
    wrong = [
        dataclasses.replace(
            point,
            is_exact=False,
            state_bytes_per_rank=70_000.0,
            bytes_per_rank_second=2049.0 * point.world,
            result={
                **point.result,
                "longest_recovery": 1.1,
                "reduce_bytes": 1.0,
                "controller": {"mean_us": point.world, "per_window_ms": 1.0, "seconds": 1e9},
            },
        )
        for point in points
    ]
    held = {each.bar: each.holds for each in judge(wrong, wall_s=10.0, is_same=True)}
    good = {"the same twice", "seconds for the set", "slope of the time of an average"}
    assert {bar for bar, holds in held.items() if holds} == good


def measured(steps: tuple[int, int], windows: int) -> dict[str, Any]:
    ranks = [{"steps": steps[0], "step_ms": 20.0}, {"steps": steps[1], "step_ms": 50.0}]
    run = {
        "arm": "cpu-cadence",
        "scenario": "slow",
        "run_s": 10.0,
        "ranks": ranks,
        "windows": windows,
    }
    return {"runs": [run], "epoch_batches": 50, "base_ms": 20.0}


def test_two_simulated_ranks_are_compared_with_measured_ones() -> None:
    asked: list[tuple[float, float, int, int]] = []

    def simulated(*question: Any) -> dict[str, Any]:
        asked.append(question)
        return {"batches_per_second": 70.0, "windows": 2.0}

    good = judge_reality(measured((500, 200), 28), simulated)
    assert asked == [(2.5, 20.0, 50, 14)]
    assert [each.holds for each in good] == [True, True]
    assert [each.found for each in good] == pytest.approx([1.0, 1.0])
    bad = judge_reality(measured((350, 150), 40), simulated)
    assert [each.holds for each in bad] == [False, False]
    assert judge_reality({"runs": []}, simulated) == []


def test_the_chart_has_a_line_for_each_kind_of_speeds(points: list[Point]) -> None:
    picture = ElementTree.fromstring(chart([p for p in points if p.travel == "ring"]))
    lines = [part for part in picture.iter() if part.tag.endswith("polyline")]
    assert len(lines) == len(SPEEDS)
    assert all(len(line.attrib["points"].split()) == 3 for line in lines)
    assert ElementTree.fromstring(chart([])) is not None


def test_the_command_writes_curves_and_tells_the_bars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reality = tmp_path / "scaling.json"
    reality.write_text(json.dumps(measured((500, 200), 28)))
    options = ["--most", "4", "--batches", "20", "--processes", "1", "--output", str(tmp_path)]
    assert main([*options, "--against", str(reality)]) == 0
    text = capsys.readouterr().out
    assert "throughput of W=2, model over measured" in text
    facts = json.loads((tmp_path / "curves.json").read_text())
    assert facts["hash"] in text
    assert len(facts["points"]) == 2 * len(TRAVELS) * len(SPEEDS)
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")
    assert (tmp_path / "curves.txt").read_text() in text


def test_counts_below_one_are_misuse() -> None:
    with pytest.raises(SystemExit):
        main(["--batches", "0"])
