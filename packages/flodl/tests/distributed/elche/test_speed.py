import math

from flodl.distributed.elche.speed import Speed, prior_of, reading_times


def taken(*readings):
    speed = Speed()
    for reading in readings:
        speed.take(reading * 4, 4)
    return speed


def test_the_mean_of_the_last_five_readings_counts():
    assert taken(10, 20).ms == 15
    assert taken(90, 10, 10, 10, 10, 15).ms == 11


def test_a_single_spike_is_ignored():
    assert taken(10, 10, 10, 10, 10, 31, 10).readings == [10] * 5


def test_real_throttling_is_seen_after_two_reports():
    speed = taken(10, 10, 10, 10, 10, 31)
    assert speed.ms == 10
    speed.take(33 * 4, 4)
    assert speed.readings == [10, 10, 10, 31, 33]


def test_a_spike_up_does_not_confirm_a_spike_down():
    speed = taken(10, 10, 10, 10, 10, 31, 1)
    assert speed.ms == 10
    assert speed.held_back == 1


def test_a_spike_counts_at_once_while_few_readings_are_known():
    assert taken(10, 31).ms == 20.5


def test_five_missing_reports_forget_the_speed():
    speed = taken(10, 10)
    for bad in ((0.0, 4), (5.0, 0), (math.nan, 4), (math.inf, 4)):
        speed.take(*bad)
        assert speed.ms == 10
    speed.take(-1.0, 4)
    assert speed.ms is None


def test_delivered_time_counts_only_where_all_who_worked_have_it():
    assert reading_times([1.0, 2.0], [3.0, 4.0], [1, 1]) == [3.0, 4.0]
    assert reading_times([1.0, 2.0], [3.0, None], [1, 1]) == [1.0, 2.0]
    assert reading_times([1.0, 2.0], [3.0, None], [1, 0]) == [3.0, 0.0]


def test_a_newcomer_starts_with_the_speed_of_like_devices():
    devices = {"a": "H200", "b": "H200", "c": "A100"}
    speeds = {"a": 10.0, "b": 20.0, "c": None}
    assert prior_of("H200", devices, speeds) == 15
    assert prior_of("A100", devices, speeds) is None
