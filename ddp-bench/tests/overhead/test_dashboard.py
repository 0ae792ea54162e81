import json
import statistics

import pytest

from ddp_bench.overhead import dashboard, dashboard_plane
from ddp_bench.overhead.dashboard import Arm, ArmResult, DashboardResult
from ddp_bench.overhead.dashboard_plane import Figure, grown_tree, node_seconds, page_bytes


def result(*ratios, page_s=0.1, bar=1.01):
    arms = tuple(ArmResult(name="arm", bar=bar, ratios=(r, r, r)) for r in ratios)
    return DashboardResult(
        processor="Some CPU", torch_version="2.11.0", step_ms=5.0, arms=arms, page_s=page_s
    )


def test_a_run_passes_only_with_every_bar():
    assert result(1.0, 1.01).passed
    assert not result(1.0, 1.02).passed
    assert not result(1.0, page_s=0.5).passed


def test_the_figure_is_the_median_over_the_rounds():
    arm = ArmResult(name="arm", bar=1.01, ratios=(1.0, 1.005, 3.0))
    assert arm.ratio == 1.005
    assert arm.holds


def test_the_table_names_the_machine_and_each_missed_bar():
    text = dashboard.render(result(1.0, 1.5, page_s=1.0))
    assert text.startswith("Some CPU; torch 2.11.0")
    assert text.count("MISSED") == 2


@pytest.mark.slow
def test_every_part_on_is_measured_against_the_bare_loop(capsys):
    arm = Arm(
        name="all",
        bar=10.0,
        clients=2,
        is_served=True,
        reports=4,
        has_log=True,
        has_timeline=True,
        has_page=True,
    )
    measured = dashboard.run(rounds=1, seconds=0.1, arms=[arm])
    names = [arm.name for arm in measured.arms]
    assert names == ["monitor, nothing asked", "all", "profile of a graph"]
    assert all(len(arm.ratios) == 1 for arm in measured.arms)
    assert 1 < measured.arms[0].ratio < 1.5
    assert measured.step_ms >= 4.0


def test_a_page_gets_no_more_of_300_ranks_than_of_64():
    assert page_bytes(300) <= 1.5 * page_bytes(64)
    assert page_bytes(300, limit=300) > 3 * page_bytes(64)


def test_a_node_does_not_cost_what_other_branches_are():
    small = statistics.median(node_seconds(grown_tree(30), "root/a", times=40))
    large = statistics.median(node_seconds(grown_tree(3000), "root/a", times=40))
    assert large <= 3 * small


def test_bars_are_highest_or_lowest():
    assert Figure(name="x", value=5, unit="", bar=5).holds
    assert not Figure(name="x", value=5.1, unit="", bar=5).holds
    assert not Figure(name="x", value=4, unit="", bar=5, is_least=True).holds


def test_missed_bars_fail_the_gate(monkeypatch, capsys):
    monkeypatch.setattr(
        dashboard_plane, "run", lambda ticks: [Figure(name="x", value=9, unit="ms", bar=5)]
    )
    assert dashboard_plane.main([]) == 0
    assert dashboard_plane.main(["--gate"]) == 1
    assert "MISSED" in capsys.readouterr().out
    dashboard_plane.main(["--json"])
    assert json.loads(capsys.readouterr().out)[0]["holds"] is False
