import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl.records.series import TieredSeries

rows = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.floats(-1e3, 1e3), max_size=3),
    min_size=1,
    max_size=200,
)


def filled(capacity, values, **place):
    series = TieredSeries(capacity)
    for number, row in enumerate(values):
        series.add(1000 + 10 * number, row, epoch=number // 7, step=number)
    return series


@given(rows)
@settings(max_examples=60)
def test_no_value_leaves_the_envelope_however_often_buckets_merge(values):
    series = filled(8, values)
    assert len(series) <= 8
    body = series.slice().body()
    for key in series.keys:
        truth = [row[key] for row in values if key in row]
        columns = body["keys"][key]
        present = [i for i, mean in enumerate(columns["mean"]) if mean is not None]
        assert min(columns["min"][i] for i in present) == min(truth)
        assert max(columns["max"][i] for i in present) == max(truth)
        assert columns["last"][present[-1]] == truth[-1]
    counts = {key: part[:, 0].sum() for key, part in series.slice().keys.items()}
    sums = {key: part[:, 3].sum() for key, part in series.slice().keys.items()}
    for key in series.keys:
        truth = [row[key] for row in values if key in row]
        assert counts[key] == len(truth)
        assert sums[key] == pytest.approx(math.fsum(truth), abs=1e-6)


def test_every_value_is_exact_until_the_room_is_used_up():
    values = [{"a": 0.1 * n} for n in range(64)]
    body = filled(64, values).slice().body()
    for column in ("min", "max", "mean", "last"):
        assert body["keys"]["a"][column] == [row["a"] for row in values]
    assert body["step"] == list(range(64))


def test_the_start_of_the_run_stays_visible_forever():
    series = filled(16, [{"a": float(n)} for n in range(10_000)])
    body = series.slice().body()
    assert body["keys"]["a"]["min"][0] == 0.0
    assert body["keys"]["a"]["last"][-1] == 9999.0
    assert body["step"][-1] == 9999
    assert body["t"] == sorted(body["t"])


def test_an_absent_key_is_null_and_not_zero():
    series = filled(8, [{"a": 1.0}, {"b": 2.0}])
    assert series.slice().body()["keys"]["a"]["mean"] == [1.0, None]


def test_a_slice_can_be_cut_in_time_keys_and_points():
    series = filled(1024, [{"a": float(n), "b": 0.0} for n in range(100)])
    part = series.slice(keys=["a", "nope"], points=5, start=1500, end=1690)
    assert list(part.keys) == ["a"]
    body = part.body()
    assert len(body["t"]) == 5
    assert body["keys"]["a"]["min"][0] == 50.0
    assert body["keys"]["a"]["max"][-1] == 69.0
    assert body["stride_ms"] == 40


def test_an_empty_slice_has_empty_columns():
    body = filled(8, [{"a": 1.0}]).slice(start=10**9).body()
    assert body == {
        "t": [],
        "epoch": [],
        "step": [],
        "keys": {"a": {"min": [], "max": [], "mean": [], "last": []}},
        "stride_ms": 0,
    }


def test_room_grows_with_use_and_never_beyond_the_capacity():
    series = filled(256, [{f"k{n}": 1.0 for n in range(12)}] * 5000)
    assert series._values.shape[0] == 256
    assert series._values.shape[1] <= 16
