import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.replica.balance import Balance, floored_shares


def measured(balance, speeds, steps, rows=100):
    for _ in range(steps):
        for device, speed in enumerate(speeds):
            balance.take(device, rows, rows / speed)
        balance.step()


def test_rows_are_split_equally_at_first_the_remainder_to_the_first():
    assert Balance(3).sizes(100) == [34, 33, 33]
    assert Balance(2).sizes(7) == [4, 3]


def test_golden_split_by_speed():
    balance = Balance(3)
    measured(balance, [3.0, 2.0, 1.0], 10)
    assert balance.sizes(900) == [450, 300, 150]


def test_ten_steps_calibrate_and_fifty_lie_between_splits():
    balance = Balance(2)
    measured(balance, [3.0, 1.0], 9)
    assert balance.ratios == (0.5, 0.5)
    measured(balance, [3.0, 1.0], 1)
    assert balance.ratios == pytest.approx((0.75, 0.25))
    measured(balance, [1.0, 1.0], 49)
    assert balance.ratios == pytest.approx((0.75, 0.25))
    measured(balance, [1.0, 1.0], 1)
    assert balance.ratios == pytest.approx((0.5, 0.5), abs=1e-6)


def test_throughput_is_smoothed_and_begins_with_the_first_value():
    balance = Balance(2)
    balance.take(0, 20, 10.0)
    assert balance.throughput == [2.0, 0.0]
    balance.take(0, 40, 10.0)
    assert balance.throughput[0] == pytest.approx(2.0 + 0.3 * 2.0)
    balance.take(0, 0, 10.0)
    balance.take(0, 5, 0.0)
    assert balance.throughput[0] == pytest.approx(2.6)


def test_a_slow_device_keeps_five_percent_which_the_others_give_in_proportion():
    shares = floored_shares([60.0, 39.0, 1.0])
    assert shares == pytest.approx((0.95 * 60 / 99, 0.95 * 39 / 99, 0.05))
    assert sum(shares) == pytest.approx(1.0, abs=1e-12)


def test_a_device_that_gives_may_come_to_the_floor_itself():
    shares = floored_shares([90.0, 5.2, 0.1, 4.7])
    assert shares[1:] == pytest.approx((0.05, 0.05, 0.05))
    assert sum(shares) == pytest.approx(1.0, abs=1e-12)


def test_too_many_devices_for_the_floor_are_refused():
    assert floored_shares([1.0] * 20) == pytest.approx((0.05,) * 20)
    with pytest.raises(ConfigError, match="21 devices"):
        Balance(21)
    with pytest.raises(ConfigError, match="positive number"):
        floored_shares([1.0, 0.0])


def test_every_device_takes_a_row_where_there_are_so_many():
    balance = Balance(3)
    measured(balance, [50.0, 1.0, 1.0], 10)
    assert balance.sizes(4) == [2, 1, 1]
    assert balance.sizes(2) == [1, 1, 0]
    for rows in range(1, 60):
        assert sum(balance.sizes(rows)) == rows


def test_rows_that_belong_to_their_device_stay_there():
    balance = Balance(2, holds=True)
    measured(balance, [3.0, 1.0], 70)
    assert balance.sizes(8) == [4, 4]
