import math

import pytest

from flodl.core.errors import ConfigError
from flodl.metrics.trend import Trend, TrendGroup

NAN, INF = math.nan, math.inf


def test_plain_numbers():
    trend = Trend([3, 1, 2])
    assert (len(trend), trend.values, trend.latest) == (3, [3.0, 1.0, 2.0], 2.0)
    assert (trend.last(2), trend.last(9), trend.last(0)) == ([1.0, 2.0], [3.0, 1.0, 2.0], [])
    assert (trend.mean, trend.min, trend.max) == (2.0, 1.0, 3.0)


def test_empty_trend_answers_with_nothing():
    trend = Trend()
    assert (len(trend), trend.last(3), trend.slope()) == (0, [], 0.0)
    assert all(map(math.isnan, (trend.latest, trend.mean, trend.min, trend.max)))
    assert not any((trend.improving(), trend.stalled(), trend.converged(), trend.diverged()))


@pytest.mark.parametrize(
    ("values", "window", "slope"),
    [
        ([5.0], 0, 0.0),
        ([1.0, 3.0], 0, 2.0),
        ([1.0, 2.0, 4.0], 0, 1.5),
        ([9.0, 1.0, 2.0, 4.0], 3, 1.5),
        ([1.0, 1.0, 1.0], 0, 0.0),
        ([4.0, 3.0, 2.0, 1.0], 10, -1.0),
    ],
)
def test_slope_is_that_of_the_least_squares_line(values, window, slope):
    assert Trend(values).slope(window) == pytest.approx(slope)


def test_improving_follows_the_mode():
    assert Trend([2, 1]).improving()
    assert not Trend([1, 2]).improving()
    assert Trend([1, 2]).improving(mode="max")
    assert not Trend([1]).improving()
    assert not Trend([5, 1, 2]).improving(2)


def test_stalled_and_converged_need_a_full_window():
    flat = Trend([1.0] * 4)
    assert flat.stalled(4, 1e-4)
    assert not flat.stalled(5, 1e-4)
    assert flat.converged(4, 1e-5)
    assert not flat.converged(5, 1e-5)
    assert not Trend([1.0]).stalled(1, 1e-4)
    assert not Trend([1.0]).converged(0, 1e-5)
    assert Trend([1.0, 1.0]).stalled(0, 1e-4)


def test_converged_uses_the_population_variance():
    trend = Trend([1.0, 3.0])
    assert trend.converged(2, 1.01)
    assert not trend.converged(2, 1.0)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_diverged_silences_every_other_answer(bad):
    trend = Trend([1.0, 1.0, bad])
    assert trend.diverged()
    assert not any((trend.improving(), trend.stalled(), trend.converged(3, INF)))
    recovered = Trend([bad, 1.0, 1.0])
    assert not recovered.diverged()
    assert recovered.diverged(3)
    assert recovered.stalled(2)
    assert not recovered.stalled(3)


def test_groups_ask_all_or_any():
    group = TrendGroup([Trend([2, 1]), Trend([1, 2]), Trend([1, 1])])
    assert (group.any_improving(), group.all_improving()) == (True, False)
    assert (group.any_stalled(2), group.all_stalled(2)) == (True, False)
    assert (group.any_converged(2), group.all_converged(2)) == (True, False)
    assert group.slopes() == [-1.0, 1.0, 0.0]
    assert group.mean_slope() == 0.0
    assert TrendGroup([Trend([2, 1]), Trend([3, 1])]).all_improving()
    assert len(group) == 3


def test_empty_group_says_no():
    group = TrendGroup([])
    answers = (group.all_improving(), group.all_stalled(), group.all_converged())
    assert not any(answers)
    assert group.slopes() == []
    assert group.mean_slope() == 0.0


def test_pictures_of_a_trend():
    assert Trend([0, 1, NAN, 7]).sparkline() == "▁▂ █"
    assert Trend([NAN]).sparkline() == " "
    assert Trend([1, 1]).sparkline() == "▁▁"
    assert repr(Trend([1, 2])) == "Trend(2 values, latest=2, ▁█)"
    assert "2 values" in Trend([1, 2])._repr_html_()


def test_questions_that_mean_nothing_are_refused():
    trend = Trend([3.0, 2.0, 1.0])
    with pytest.raises(ConfigError, match=r"improving\(mode='maxx'\): it is 'min' or 'max'"):
        trend.improving(mode="maxx")
    for ask in (trend.slope, trend.improving, trend.stalled, trend.converged, trend.diverged):
        with pytest.raises(ConfigError, match="window=-1: it is 0 for all values"):
            ask(-1)
