import json
import math

import numpy as np
import pytest

from flodl.core.rng import Rng


def draws(rng: Rng) -> list[float]:
    return [rng.f64(), rng.f32(), rng.usize(1000), rng.normal(0.0, 1.0)]


def test_numbers_depend_on_the_seed_alone():
    assert draws(Rng(7)) == draws(Rng(7))
    assert draws(Rng(7)) != draws(Rng(8))
    assert Rng(42).usize(2**63) == 7138484576005690180


def test_entropy_gives_another_generator_each_time():
    assert draws(Rng.from_entropy()) != draws(Rng.from_entropy())


def test_ranges_hold_and_are_reached():
    rng = Rng(0)
    assert {rng.usize(3) for _ in range(200)} == {0, 1, 2}
    assert {rng.range(-2, 1) for _ in range(200)} == {-2, -1, 0}
    values = [rng.range(-0.5, 0.25) for _ in range(1000)]
    assert -0.5 <= min(values) < -0.49
    assert 0.24 < max(values) < 0.25
    assert all(0 <= rng.f32() < 1 and 0 <= rng.f64() < 1 for _ in range(1000))
    assert rng.usize(1) == 0
    assert rng.range(1.0, math.nextafter(1.0, 2.0)) == 1.0


def test_moments_are_those_of_the_distributions():
    rng = Rng(1)
    normal = np.array([rng.normal(3.0, 2.0) for _ in range(20_000)])
    assert abs(normal.mean() - 3) < 0.05
    assert abs(normal.std() - 2) < 0.05
    hits = sum(rng.bernoulli(0.3) for _ in range(20_000))
    assert abs(hits / 20_000 - 0.3) < 0.015
    assert not any(rng.bernoulli(0.0) for _ in range(100))
    assert all(rng.bernoulli(1.0) for _ in range(100))


def test_shuffle_keeps_the_items_and_reaches_every_order():
    rng = Rng(2)
    orders = set()
    for _ in range(200):
        items = ["a", "b", "c"]
        rng.shuffle(items)
        orders.add("".join(items))
    assert orders == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_a_permutation_holds_each_index_once():
    order = Rng(3).permutation(100)
    assert order.dtype == np.int64
    assert sorted(order) == list(range(100))
    assert list(order) != list(range(100))
    assert Rng(3).permutation(0).shape == (0,)


def test_a_clone_has_the_same_future_and_does_not_share_it():
    rng = Rng(4)
    draws(rng)
    rng.spawn(2)
    copy = rng.clone()
    expected = draws(copy)
    assert draws(rng) == expected
    assert draws(rng.spawn(1)[0]) == draws(copy.spawn(1)[0])


def test_spawned_generators_differ_from_all_before():
    rng = Rng(5)
    streams = [rng, *rng.spawn(3), *rng.spawn(3), *rng.spawn(1)[0].spawn(2)]
    assert len({draws(stream)[0] for stream in streams}) == len(streams)


def test_a_fork_depends_on_the_key_and_not_on_what_was_drawn():
    rng = Rng(6)
    first = draws(rng.fork("augment"))
    draws(rng)
    rng.spawn(2)
    assert draws(rng.fork("augment")) == first
    others = [draws(rng.fork(key)) for key in ("dropout", 1, "1", 0)] + [draws(Rng(6)), first]
    assert len({values[0] for values in others}) == len(others)


def test_state_goes_through_json_and_gives_the_same_future():
    rng = Rng.from_entropy().fork("a")
    draws(rng)
    rng.f32()
    text = json.dumps(rng.state_dict())
    other = Rng(0)
    other.load_state_dict(json.loads(text))
    assert [draws(rng), draws(rng.fork(1)), draws(rng.spawn(1)[0])] == [
        draws(other),
        draws(other.fork(1)),
        draws(other.spawn(1)[0]),
    ]


@pytest.mark.parametrize("broken", [{}, {"entropy": "x"}, None])
def test_a_state_of_something_else_is_refused_and_changes_nothing(broken):
    rng = Rng(9)
    state = rng.state_dict() | (broken or {})
    if not broken:
        del state["pcg64"]
    with pytest.raises(ValueError, match="not the state of an Rng"):
        rng.load_state_dict(state)
    assert draws(rng) == draws(Rng(9))


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("usize", (0,)),
        ("usize", (-1,)),
        ("usize", (2**63 + 1,)),
        ("range", (1, 1)),
        ("range", (2.0, 1.0)),
        ("range", (0.0, math.inf)),
        ("range", (math.nan, 1.0)),
        ("bernoulli", (1.1,)),
        ("bernoulli", (-0.1,)),
        ("bernoulli", (math.nan,)),
        ("normal", (0.0, -1.0)),
        ("permutation", (-1,)),
        ("spawn", (-1,)),
    ],
)
def test_impossible_requests_are_value_errors(method, arguments):
    with pytest.raises(ValueError, match=rf"{method}\("):
        getattr(Rng(0), method)(*arguments)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed=-1"):
        Rng(-1)
