import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl.core.resources import GpuSnapshot, ResourceSample, Spread
from flodl.records.errors import TelemetryError
from flodl.records.telemetry import MAX_BYTES, RankTelemetry, TelemetrySums, rank_resources


def full():
    return RankTelemetry(
        rank=3,
        step=4100,
        epoch=2,
        epoch_complete=True,
        work=1280,
        sums={"loss": (12.5, 10), "accuracy": (8.0, 10)},
        nonfinite={"grad_norm": {"nan": 2}},
        timing={"compute_only_ms": 11.5, "data_starve": 0.5},
        res={"gpu_util": (80.0, 91.5, 100.0), "vram_total": 6 << 30},
        host_res={"cpu": 30.0, "cpus": 32},
        label="GTX 1060 6GB",
        device=1,
    )


def test_what_was_sent_arrives_through_json_as_it_was():
    assert RankTelemetry.from_body(json.loads(json.dumps(full().body()))) == full()


def test_what_is_absent_is_not_sent():
    assert RankTelemetry(rank=0).body() == {"rank": 0, "work": 0}
    assert RankTelemetry.from_body({"rank": 0}) == RankTelemetry(rank=0)


def test_fields_that_are_not_known_are_passed_over():
    assert RankTelemetry.from_body({"rank": 1, "later": [1, 2]}) == RankTelemetry(rank=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": -1}, "rank=-1"),
        ({"rank": None}, "no rank"),
        ({"rank": True}, "rank=True"),
        ({"step": 1.5}, "step=1.5"),
        ({"work": -1}, "work=-1"),
        ({"work": math.nan}, "work=nan"),
        ({"work": 10**400}, "work=1000"),
        ({"sums": [1]}, "sums is no map"),
        ({"sums": {1: [1.0, 1]}}, "sums is no map"),
        ({"sums": {"loss": 1.0}}, "no pair"),
        ({"sums": {"loss": [1.0, 0]}}, "counts 0 values"),
        ({"sums": {"loss": [math.inf, 1]}}, "no finite number"),
        ({"sums": {"loss": ["1", 1]}}, "no finite number"),
        ({"nonfinite": {"loss": {"huge": 1}}}, "counts other than nan"),
        ({"timing": {"compute_only_ms": None}}, "no finite number"),
        ({"res": {"mood": 1}}, "no resource"),
        ({"res": {"gpu_util": [1, 2]}}, "no least, mean and most"),
        ({"host_res": "x"}, "host_res is no map"),
        ({"label": 5}, "label=5 is no text"),
        ({"left_out": -2}, "left_out=-2"),
    ],
)
def test_a_wrong_field_is_named(change, message):
    with pytest.raises(TelemetryError, match=message):
        RankTelemetry.from_body({**full().body(), **change})


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_what_is_no_map_is_refused(body):
    with pytest.raises(TelemetryError, match="not a map"):
        RankTelemetry.from_body(body)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(list(full().body())), ANYTHING))
@settings(max_examples=300, deadline=None)
def test_nothing_that_is_sent_raises_anything_else(changes):
    try:
        told = RankTelemetry.from_body({**full().body(), **changes})
    except TelemetryError:
        return
    assert RankTelemetry.from_body(told.body()) == told


def test_sums_add_up_and_start_afresh():
    sums = TelemetrySums()
    sums.add({"loss": (2.0, 1)}, work=10, compute_only_ms=10.0)
    sums.add({"loss": (1.0, 1), "accuracy": (0.5, 1)}, work=30, compute_only_ms=20.0)
    told = sums.take(rank=0, step=2)
    assert told.sums == {"loss": (3.0, 2), "accuracy": (0.5, 1)}
    assert told.work == 40
    assert told.timing == {"compute_only_ms": 17.5}
    assert sums.take(rank=0).body() == {"rank": 0, "work": 0}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_sum_that_is_not_finite_is_counted_and_leaves_the_others_alone(value):
    sums = TelemetrySums()
    sums.add({"loss": (1.0, 1), "grad_norm": (2.0, 1)}, work=1)
    sums.add({"loss": (value, 1)}, work=1)
    told = sums.take(rank=0)
    assert told.sums == {"loss": (1.0, 1), "grad_norm": (2.0, 1)}
    assert told.nonfinite == {"loss": {str(value): 1}}


def packed_size(body):
    """Bytes of the message at most, by the widest form that msgpack has for each part."""
    if isinstance(body, dict):
        return 5 + sum(packed_size(k) + packed_size(v) for k, v in body.items())
    if isinstance(body, list):
        return 5 + sum(map(packed_size, body))
    return 5 + len(body.encode()) if isinstance(body, str) else 9


def test_no_more_than_16_kib_are_sent_and_what_had_no_room_is_counted():
    many = {f"{'k' * 120}{n}": (1.0, 1) for n in range(256)}
    lost = {f"{'n' * 120}{n}": {"nan": 1, "inf": 1, "-inf": 1} for n in range(20)}
    body = RankTelemetry(rank=0, sums=many, nonfinite=lost, label="g" * 500).body()
    assert packed_size(body) <= MAX_BYTES
    assert len(body["sums"]) > 50
    assert len(body["nonfinite"]) == 20
    assert body["left_out"] == 256 - len(body["sums"])


def test_resources_of_a_rank_are_those_of_its_device():
    sample = ResourceSample(
        gpus=(
            GpuSnapshot(device_index=0, name="a", vram_total_bytes=1),
            GpuSnapshot(device_index=1, name="b", vram_total_bytes=2),
        )
    )
    spreads = {
        0: {"util_percent": Spread(0.0, 5.0, 9.0, 4)},
        1: {
            "util_percent": Spread(80.0, 90.0, 100.0, 4),
            "vram_allocated_bytes": Spread(1, 2, 3, 4),
        },
    }
    assert rank_resources(sample, spreads, device=1) == {
        "gpu_util": (80.0, 90.0, 100.0),
        "vram_alloc": (1, 2, 3),
        "vram_total": 2,
    }
    assert rank_resources(ResourceSample(), {}, device=0) == {}
