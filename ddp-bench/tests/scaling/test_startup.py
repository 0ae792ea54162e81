from __future__ import annotations

import pytest

from ddp_bench.scaling.startup import Pair, judge, measure


def test_starting_is_judged_by_its_median_beyond_the_import_beside_it() -> None:
    pairs = [
        Pair(import_s=1.0, started_s=2.5, respawned_s=0.4),
        Pair(import_s=2.0, started_s=3.9, respawned_s=0.5),
        Pair(import_s=1.0, started_s=9.0, respawned_s=1.5),
    ]
    start, respawn = judge(pairs)
    assert start.median_s == pytest.approx(1.9)
    assert start.holds
    assert respawn.median_s == pytest.approx(0.5)
    assert respawn.holds
    late = [Pair(import_s=1.0, started_s=3.1, respawned_s=1.1)] * 3
    assert not any(verdict.holds for verdict in judge(late))


@pytest.mark.slow
@pytest.mark.multiproc
def test_a_run_begins_and_a_killed_rank_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # or flodl starts no processes
    said: list[str] = []
    (pair,) = measure(1, said.append)
    assert pair.import_s > 0
    assert pair.respawned_s > 0
    assert pair.started_s > 0
    assert len(said) == 1
