import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.config import (
    STABLE,
    SUPPRESS_GROWTH,
    DivergenceReport,
    ElCheConfig,
    nudge_down,
)
from flodl.distributed.elche import MsfGuard, NoGuard, TrendGuard, guard_of


def divergence(value, window=1):
    return DivergenceReport(
        window=window, divergence=value, deltas={"a": value}, pre_norms={"a": 1.0}, post_norm=1.0
    )


def verdicts(guard, values, k=10):
    return [guard.report(divergence(value), k, k) for value in values]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.04, 0.06, 0.07), SUPPRESS_GROWTH),
        ((0.07, 0.06, 0.08), STABLE),
        ((0.01, 0.02, 0.03), STABLE),
        ((0.06, 0.06, 0.07), STABLE),
        ((0.07, 0.08), STABLE),
    ],
)
def test_a_high_and_rising_trend_suppresses_growth(values, expected):
    assert verdicts(TrendGuard(0.05), values)[-1] == expected


def test_the_trend_survives_saving():
    guard = TrendGuard(0.05)
    verdicts(guard, (0.04, 0.06))
    twin = TrendGuard(0.05)
    twin.load(guard.state())
    assert twin.report(divergence(0.07), 1, 1) == SUPPRESS_GROWTH
    twin.reset()
    assert twin.report(divergence(0.08), 1, 1) == STABLE


MSF = (0.010, 0.011, 0.0121, 0.01331, 0.02, 0.04, 0.08, 0.06)
S, SUP, NUDGE = STABLE, SUPPRESS_GROWTH, nudge_down(0.5)


def test_msf_smooths_the_rate_and_counts_streaks():
    guard, rates, found = MsfGuard(), [], []
    for value in MSF:
        found.append(guard.report(divergence(value), 10, 10))
        rates.append(guard.ema)
    assert rates[0] is None
    expected = [0.00953, 0.00953, 0.00953, 0.01860, 0.03098, 0.03917, 0.02614]
    assert rates[1:] == pytest.approx(expected, abs=5e-6)
    assert found == [S, S, S, SUP, S, S, NUDGE, SUP]


def test_msf_without_nudge_only_suppresses():
    assert verdicts(MsfGuard().without_nudge(), MSF) == [S, S, S, SUP, S, S, SUP, S]


@pytest.mark.parametrize("cut", range(len(MSF)))
def test_msf_keeps_rate_and_streaks_when_saved(cut):
    guard = MsfGuard()
    before = verdicts(guard, MSF[:cut])
    twin = MsfGuard()
    twin.load(guard.state())
    assert before + verdicts(twin, MSF[cut:]) == [S, S, S, SUP, S, S, NUDGE, SUP]


def test_msf_takes_no_rate_from_divergence_at_the_noise_floor():
    guard = MsfGuard()
    verdicts(guard, (0.01, 0.011))
    rate = guard.ema
    verdicts(guard, (1e-9, 0.5))
    assert guard.ema == rate
    verdicts(guard, (0.6,))
    assert guard.ema != rate


def test_closed_form_moves_the_window_towards_the_divergence_wanted():
    guard = MsfGuard(controller="closed_form", d_max=0.04)
    guard.report(divergence(0.01), 10, 10)
    # ln(0.04 / 0.02) / (ln(2) / 10) = 10 steps: the window stays.
    assert guard.report(divergence(0.02), 10, 10) == STABLE
    low = MsfGuard(controller="closed_form", d_max=0.025)
    low.report(divergence(0.01), 10, 10)
    # ln(0.025 / 0.02) / (ln(2) / 10) = 3.2 steps: half the window at most is taken off.
    assert low.report(divergence(0.02), 10, 10) == nudge_down(0.5)


@pytest.mark.parametrize(
    "options", [{"alpha": 1.0}, {"controller": "closed_form"}, {"controller": "other"}]
)
def test_msf_refuses_settings_that_mean_nothing(options):
    with pytest.raises(ConfigError, match="MsfGuard"):
        MsfGuard(**options)


def test_configuration_chooses_the_guard():
    own = MsfGuard()
    assert isinstance(guard_of(ElCheConfig.cpu_sync(convergence_guard=own)), NoGuard)
    assert guard_of(ElCheConfig.cpu_cadence(convergence_guard=own)) is own
    for config, threshold in (
        (ElCheConfig.nccl_cadence(), 0.05),
        (ElCheConfig.cpu_async(), 0.3),
        (ElCheConfig.cpu_async(divergence_threshold=0.2), 0.2),
    ):
        guard = guard_of(config)
        assert isinstance(guard, TrendGuard)
        assert guard.threshold == threshold
