import json

import pytest

from ddp_bench.overhead import dashboard_rates as rates
from ddp_bench.overhead.dashboard_plane import Figure, answer


def test_figures_are_printed_as_lines_or_as_json_and_gate_the_exit(capsys):
    figures = [Figure(name="x", value=9, unit="ms", bar=5)]
    assert answer(figures, as_json=False, is_gate=False) == 0
    assert "MISSED" in capsys.readouterr().out
    assert answer(figures, as_json=True, is_gate=True) == 1
    assert json.loads(capsys.readouterr().out)[0]["holds"] is False


def test_a_call_is_told_in_microseconds():
    calls = []
    assert 0 < rates.call_us(lambda: calls.append(1), calls=100) < 1e6
    assert len(calls) == 100


@pytest.mark.slow
def test_every_published_record_reaches_every_client():
    reached, arrived, share = rates.streaming(rate=100, clients=3, seconds=1.0)
    assert reached > 0
    assert arrived == 1.0
    assert 0 < share < 2


@pytest.mark.slow
def test_the_log_and_the_poller_have_figures():
    assert rates.lines_per_second(3000) > 0
    assert 0 < rates.poller_percent() < 100
    assert rates.log_ms() > 0
    assert len(rates.step_figures()) == 3
