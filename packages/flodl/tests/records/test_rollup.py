import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.core.errors import ConfigError
from flodl.records.errors import ReductionConflict
from flodl.records.rollup import (
    NodeValues,
    Reduction,
    Reductions,
    combine,
    combine_res,
    measured,
)

KEYS = ("loss", "a", "b")
values = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf]))
leaves = st.builds(
    measured,
    st.dictionaries(st.sampled_from(KEYS), values, max_size=3),
    st.integers(0, 10_000),
)
trees = st.recursive(leaves, lambda below: st.lists(below, min_size=1, max_size=5), max_leaves=25)


def flat(tree):
    return (
        [tree] if isinstance(tree, NodeValues) else [leaf for part in tree for leaf in flat(part)]
    )


def rolled(tree, reductions):
    if isinstance(tree, NodeValues):
        return tree
    return combine([rolled(part, reductions) for part in tree], reductions)


@given(trees)
def test_the_mean_of_means_is_the_mean_over_all_leaves(tree):
    reductions = Reductions()
    total, all_leaves = rolled([tree], reductions), flat(tree)
    for key in KEYS:
        pairs = [
            (leaf.metrics[key], leaf.work)
            for leaf in all_leaves
            if leaf.metrics.get(key) is not None and leaf.work > 0
        ]
        if pairs:
            weight = sum(w for _, w in pairs)
            truth = math.fsum(v * w for v, w in pairs) / weight
            scale = max(abs(v) for v, _ in pairs)
            assert abs(total.metrics[key] - truth) <= 1e-12 * max(scale, abs(truth))
            assert total.weight(key) == weight
        else:
            assert total.metrics.get(key) is None
            measured_there = any(key in leaf.metrics for leaf in all_leaves)
            finite_there = any(leaf.metrics.get(key) is not None for leaf in all_leaves)
            if not measured_there:
                assert key not in total.metrics
            elif not finite_there:
                assert total.metrics[key] is None


@given(trees)
def test_counts_of_what_is_not_finite_add_up(tree):
    total = rolled([tree], Reductions())
    truth = {}
    for leaf in flat(tree):
        for key, counts in leaf.nonfinite.items():
            for name, count in counts.items():
                truth[key, name] = truth.get((key, name), 0) + count
    found = {(k, n): c for k, counts in total.nonfinite.items() for n, c in counts.items()}
    assert found == truth


@pytest.mark.parametrize(
    ("reduction", "expected"), [("sum", 6.0), ("max", 3.0), ("min", 1.0), ("last", 2.0)]
)
def test_declared_reductions_fold_the_reporting_children(reduction, expected):
    reductions = Reductions()
    reductions.declare("x", reduction)
    children = [measured({"x": v}, w) for v, w in [(1.0, 5), (2.0, 50), (3.0, 7)]]
    children.append(measured({}, 1000))
    assert combine(children, reductions).metrics == {"x": expected}


def test_a_child_that_did_no_work_does_not_enter_the_mean():
    reductions = Reductions()
    total = combine([measured({"x": 1.0}, 0)], reductions)
    assert "x" not in total.metrics
    total = combine([measured({"x": 1.0}, 0), measured({"x": 3.0}, 2)], reductions)
    assert total.metrics["x"] == 3.0


def test_a_zero_is_a_value_and_an_absence_is_none():
    total = combine([measured({"x": 0.0}, 1), measured({}, 1)], Reductions())
    assert total.metrics == {"x": 0.0}
    assert total.kwork == {"x": 1}


def test_a_fixed_key_cannot_be_declared_otherwise():
    with pytest.raises(ReductionConflict, match=r"'loss' is fixed as mean.*sum"):
        Reductions().declare("loss", Reduction.SUM)


def test_an_unknown_reduction_is_refused_with_the_legal_ones():
    with pytest.raises(ConfigError, match="'median'.*last, max, mean, min, sum"):
        Reductions().declare("x", "median")


def test_an_idle_gpu_counts_in_the_mean_utilization():
    busy, idle = {"gpu_util": 100.0, "gpus": 1}, {"gpu_util": 0.0, "gpus": 3}
    assert combine_res([busy, idle])["gpu_util"] == 25.0


def test_resources_sum_and_peak_and_absent_stays_absent():
    total = combine_res(
        [
            {"vram_alloc": 5, "vram_total": 10, "temp_c": 60, "gpu_util_max": 90.0, "gpus": 1},
            {"vram_alloc": 7, "temp_c": 70, "gpus": 1},
            {},
        ]
    )
    assert total == {
        "vram_alloc": 12,
        "vram_total": 10,
        "temp_c": 70,
        "gpu_util_max": 90.0,
        "gpus": 2,
    }
