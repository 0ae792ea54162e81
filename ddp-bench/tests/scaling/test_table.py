from __future__ import annotations

import math
from collections.abc import Callable

from ddp_bench.scaling.measure import RunFigures
from ddp_bench.scaling.table import Table


def test_the_best_period_of_an_arm_counts(make_run: Callable[..., RunFigures]) -> None:
    table = Table(
        [
            make_run("torch-localsgd", 9.0, period=8),
            make_run("torch-localsgd", 7.0, period=32),
            make_run("torch-localsgd", None, period=64),
            make_run("torch-ddp", 8.0),
        ]
    )
    best = table.best("slow", "torch-localsgd")
    assert best is not None
    assert best.label == "torch-localsgd H=32"
    assert table.best("slow", "torchft-diloco") is None
    assert table.best("equal", "torch-ddp") is None


def test_of_periods_that_missed_the_loss_the_lowest_at_the_end_counts(
    make_run: Callable[..., RunFigures],
) -> None:
    table = Table(
        [
            make_run("torchft-diloco", None, period=8, curve=[(1.0, 0.6)]),
            make_run("torchft-diloco", None, period=32, curve=[(1.0, 0.5)]),
        ]
    )
    best = table.best("slow", "torchft-diloco")
    assert best is not None
    assert best.label == "torchft-diloco H=32"
    assert not best.is_reached


def test_runs_are_in_the_order_of_their_seeds_and_missed_ones_count_as_told(
    make_run: Callable[..., RunFigures],
) -> None:
    table = Table([make_run("torch-ddp", None, seed=44), make_run("torch-ddp", 6.0, seed=43)])
    (row,) = table.rows("slow")
    assert row.times() == [6.0, 20.0]
    assert row.times(censored=math.inf) == [6.0, math.inf]
