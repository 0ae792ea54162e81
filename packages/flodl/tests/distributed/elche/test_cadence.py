import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError
from flodl.distributed.config import (
    STABLE,
    SUPPRESS_GROWTH,
    ElCheConfig,
    nudge_down,
)
from flodl.distributed.elche import DeviceSpec, ElChe, Phase


def report(elche, ms, sync, verdict=STABLE, **options):
    """One window in which every rank ran what was planned."""
    counts = elche.batch_counts
    wall = [count * each for count, each in zip(counts, ms, strict=True)]
    elche.report_window(wall, counts, sync, **options)
    elche.apply_verdict(verdict)


def test_hint_gives_the_fast_rank_more_batches_at_once():
    elche = ElChe(2, 10).with_speed_ratio(1, 2.3)
    assert elche.batch_counts == [23, 10]
    assert elche.anchor_rank == 1
    assert elche.has_speed_hint
    assert not elche.is_calibrated


def test_counts_are_equal_before_the_first_report():
    assert ElChe(3, 7).batch_counts == [7, 7, 7]


def test_slow_rank_sets_the_anchor_once_it_dominates():
    elche = ElChe(3, 10)
    for number in range(1, 11):
        report(elche, [40, 90, 100], 50)
        early = number < 6
        assert elche.anchor_rank == (1 if early else 2)
        assert elche.batch_counts == ([23, 10, 9] if early else [25, 11, 10])
        assert elche.anchor == 10
        assert elche.phase is (Phase.WARMUP if number < 5 else Phase.STABLE)


def grown():
    elche = ElChe(2, 10)
    for _ in range(9):
        report(elche, [10, 25], 1000)
    return elche


def test_anchor_doubles_at_most_until_overhead_meets_its_target():
    elche = ElChe(2, 10)
    anchors, fast = [], []
    for _ in range(9):
        report(elche, [10, 25], 1000)
        anchors.append(elche.anchor)
        fast.append(elche.batches(0))
        assert elche.batches(1) == elche.anchor
    assert anchors == [10, 20, 40, 80, 160, 320, 356, 360, 360]
    assert fast == [25, 50, 100, 200, 400, 800, 890, 900, 900]


def test_nudge_halves_the_anchor_and_growth_waits_for_five_stable_windows():
    elche = grown()
    elche.apply_verdict(nudge_down(0.5))
    assert (elche.anchor, elche.batch_counts) == (180, [450, 180])
    assert not elche.is_growth_armed
    for _ in range(5):
        report(elche, [10, 25], 1000)
        assert elche.anchor == 180
    assert elche.is_growth_armed
    report(elche, [10, 25], 1000)
    assert (elche.anchor, elche.batch_counts) == (328, [820, 328])


def test_a_stale_proposal_never_undoes_a_nudge():
    elche = ElChe(2, 10)
    for _ in range(3):
        report(elche, [10, 25], 1000)
    before = elche.anchor
    counts = elche.batch_counts
    elche.report_window([10 * counts[0], 25 * counts[1]], counts, 1000)
    elche.apply_verdict(nudge_down(0.5))
    elche.apply_verdict(STABLE)
    assert elche.anchor == math.ceil(before / 2)


def test_nudge_may_go_below_the_least_anchor_but_never_below_one():
    elche = ElChe(2, 10)
    report(elche, [10, 25], 0)
    elche.apply_verdict(nudge_down(0.3))
    assert elche.anchor == 3
    for _ in range(9):
        elche.apply_verdict(nudge_down(0.0))
    assert elche.anchor == 1


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_nudge_by_no_number_leaves_the_anchor(factor):
    elche = grown()
    elche.apply_verdict(nudge_down(factor))
    assert elche.anchor == 360
    assert not elche.is_growth_armed


def test_suppressed_growth_drops_the_proposal():
    elche = ElChe(2, 10)
    report(elche, [10, 25], 1000)
    report(elche, [10, 25], 1000, SUPPRESS_GROWTH)
    assert elche.anchor == 10
    assert not elche.is_growth_armed


def test_window_never_exceeds_the_epoch_and_does_not_grow_then():
    elche = ElChe(2, 10)
    elche.set_epoch_batches(30)
    for _ in range(8):
        report(elche, [10, 25], 1000)
        assert elche.anchor == 10
        assert elche.batch_counts == [22, 8]
        assert elche.is_cap_binding


def test_counts_ignore_a_change_within_five_percent():
    elche = ElChe(2, 100)
    elche.report_window([100 * 10.0, 100 * 20.0], [100, 100], 0)
    elche.apply_verdict(STABLE)
    assert elche.batch_counts == [200, 100]
    elche.report_window([200 * 9.6, 100 * 20.0], [200, 100], 0)
    elche.apply_verdict(STABLE)
    assert elche.batch_counts == [200, 100]


def test_counts_come_from_what_ran_and_not_from_the_plan():
    elche = ElChe(2, 10)
    elche.report_window([40.0, 250.0], [4, 10], 0)
    elche.apply_verdict(STABLE)
    assert elche.batch_counts == [25, 10]


def test_a_calibrated_count_moves_at_most_by_max_batch_diff():
    elche = ElChe(2, 10, config=ElCheConfig(anchor=10, max_batch_diff=3))
    report(elche, [20, 20], 0)
    assert elche.batch_counts == [10, 10]
    for _ in range(5):
        report(elche, [5, 20], 0)
    counts = elche.batch_counts
    report(elche, [5, 20], 0)
    assert 0 < elche.batches(0) - counts[0] <= 3


def test_slack_is_taken_off_once():
    elche = ElChe(2, 10)
    report(elche, [10, 25], 0)
    assert elche.batch_counts == [25, 10]
    elche.stage_slack(0, 51)
    assert elche.batch_counts == [19, 10]
    report(elche, [10, 25], 0)
    assert elche.batch_counts == [25, 10]


def test_relax_up_adds_one_batch_after_each_stable_window():
    elche = ElChe(2, 10, config=ElCheConfig(anchor=10, relax_up=True))
    report(elche, [10, 20], 0)
    report(elche, [10, 20], 0)
    assert elche.anchor == 12


def test_relax_up_is_refused_where_ranks_would_be_too_far_apart():
    elche = ElChe(2, 10, config=ElCheConfig(anchor=10, relax_up=True, max_batch_diff=11))
    for _ in range(4):
        report(elche, [10, 20], 0)
    assert elche.anchor == 11


def test_anchor_decays_by_one_only_when_asked():
    for decays, expected in ((True, 19), (False, 20)):
        config = ElCheConfig(anchor=20, min_anchor=5, anchor_decay=decays)
        elche = ElChe(2, 20, config=config)
        report(elche, [10, 25], 0)
        report(elche, [10, 25], 0)
        assert elche.anchor == expected


def test_silent_pinned_anchor_is_replaced_after_five_windows():
    elche = ElChe(2, 10).with_initial_anchor(1)
    for number in range(5):
        assert elche.anchor_rank == 1, number
        elche.report_window([100.0, 0.0], [10, 0], 0)
        elche.apply_verdict(STABLE)
    assert elche.anchor_rank == 0


def test_known_devices_pin_the_slowest_unless_someone_told():
    fast = DeviceSpec(vendor="nvidia", generation=12, vram_gb=16)
    slow = DeviceSpec(vendor="nvidia", generation=6, vram_gb=6)
    other = DeviceSpec(vendor="amd", generation=6, vram_gb=6)
    assert ElChe(2).with_device_specs([fast, slow]).anchor_rank == 1
    assert ElChe(2).with_device_specs([fast, other]).anchor_rank is None
    assert ElChe(2).with_device_specs([fast, None]).anchor_rank is None
    assert ElChe(2).with_initial_anchor(0).with_device_specs([fast, slow]).anchor_rank == 0


def test_members_who_stay_keep_their_calibration():
    elche = ElChe(3, 10, members=["a", "b", "c"])
    for _ in range(6):
        report(elche, [10, 20, 40], 0)
    assert elche.anchor_member == "c"
    elche.change_members(["a", "b"])
    assert elche.ms_per_batch == [10, 20]
    assert elche.anchor_member == "b"
    assert elche.batch_counts == [20, 10]
    elche.change_members(["b", "d", "a"], {"d": 5.0})
    assert elche.ms_per_batch == [20, 5.0, 10]
    assert elche.batch_counts == [10, 40, 20]


def test_sync_modes_count_one_batch_and_never_grow():
    elche = ElChe.for_members(["a", "b"], ElCheConfig.cpu_sync())
    for _ in range(8):
        report(elche, [10, 25], 1000)
    assert (elche.anchor, elche.batch_counts) == (1, [1, 1])


def test_recent_share_follows_the_last_ten_windows():
    elche = ElChe(2, 10)
    assert elche.recent_batch_share == [0.5, 0.5]
    for _ in range(10):
        elche.report_window([30.0, 10.0], [3, 1], 0)
    assert elche.recent_batch_share == [0.75, 0.25]


@pytest.mark.parametrize("arguments", [(1, 10), (2, 0), (0, 10), (2, True)])
def test_a_size_or_anchor_out_of_range_is_refused(arguments):
    with pytest.raises(ConfigError, match="ElChe"):
        ElChe(*arguments)


def test_a_window_of_another_size_is_refused():
    with pytest.raises(ConfigError, match="expected 2 of each"):
        ElChe(2).report_window([1.0], [1], 0)


def test_exact_state_decides_as_the_original_would():
    elche = grown()
    twin = ElChe.from_state(elche.to_state(exact=True), elche.config)
    for each in (elche, twin):
        each.apply_verdict(nudge_down(0.4))
        report(each, [11, 24], 900)
    assert twin.to_state(exact=True) == elche.to_state(exact=True)


def test_means_are_enough_to_start_calibrated():
    elche = grown()
    twin = ElChe.from_state(elche.to_state(), elche.config)
    assert twin.batch_counts == elche.batch_counts
    assert twin.ms_per_batch == elche.ms_per_batch


times = st.floats(0.01, 1e6)
verdicts = st.one_of(st.just(STABLE), st.just(SUPPRESS_GROWTH), st.floats(-1, 2).map(nudge_down))


@given(
    st.integers(2, 6).flatmap(
        lambda world: st.tuples(
            st.integers(1, 50),
            st.none() | st.integers(world, 500),
            st.lists(
                st.tuples(
                    st.lists(times, min_size=world, max_size=world),
                    st.lists(st.integers(0, 30), min_size=world, max_size=world),
                    st.floats(0, 1e5),
                    verdicts,
                ),
                max_size=30,
            ),
        )
    )
)
def test_counts_and_anchor_stay_in_bounds_whatever_is_reported(run):
    anchor, cap, windows = run
    world = len(windows[0][0]) if windows else 2
    elche = ElChe(world, anchor)
    if cap is not None:
        elche.set_epoch_batches(cap)
    for wall, counts, sync, verdict in windows:
        before = elche.anchor
        elche.report_window(wall, counts, sync)
        elche.apply_verdict(verdict)
        assert all(count >= 1 for count in elche.batch_counts)
        assert 1 <= elche.anchor <= max(1000, anchor)
        assert elche.anchor <= max(2 * before, before + 1)
        if verdict.kind is not STABLE.kind:
            assert elche.anchor <= before
        if cap is not None:
            assert elche.total_batches <= max(cap, world)
        assert sum(elche.clamp_total(7)) == min(7, elche.total_batches)
