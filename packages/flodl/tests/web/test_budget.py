import pytest

from flodl.web.budget import LONGEST_WAIT_S, RequestBudget, cost_of


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


def budget(clock, is_over=False):
    return RequestBudget(lambda: is_over, rate=10, burst=20, clock=clock)


def test_a_burst_is_answered_at_once_and_what_follows_at_the_rate(clock):
    spent = budget(clock)
    waits = [spent.reserve(1) for _ in range(25)]
    assert waits[:20] == [0.0] * 20
    assert waits[20:] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_what_would_wait_too_long_is_refused_and_costs_nothing(clock):
    spent = budget(clock)
    assert spent.reserve(20 + 10 * LONGEST_WAIT_S) == LONGEST_WAIT_S
    assert spent.is_exhausted
    assert [spent.reserve(1) for _ in range(5)] == [None] * 5
    clock.now += 1
    assert not spent.is_exhausted
    assert spent.reserve(1) == pytest.approx(LONGEST_WAIT_S - 0.9)


def test_it_refills_to_its_burst_and_no_further(clock):
    spent = budget(clock)
    spent.reserve(20)
    clock.now += 1000
    assert [spent.reserve(1) for _ in range(21)] == [0.0] * 20 + [pytest.approx(0.1)]


def test_a_run_that_has_ended_has_no_budget(clock):
    spent = budget(clock, is_over=True)
    assert spent.reserve(1e9) == 0.0
    assert not spent.is_exhausted


def test_the_whole_run_costs_more_than_a_file():
    assert cost_of("/static/x/app.js") < cost_of("/paths") < cost_of("/node") < cost_of("/snapshot")


def test_connections_are_paid_for_though_nobody_can_refuse_them(clock):
    spent = budget(clock)
    for _ in range(500):
        spent.charge_connection()
    assert spent.is_exhausted
    assert spent.reserve(1) is None
    clock.now += 1
    assert not spent.is_exhausted


def test_connections_of_a_run_that_has_ended_are_free(clock):
    spent = budget(clock, is_over=True)
    spent.charge_connection()
    assert spent.reserve(1) == 0.0
