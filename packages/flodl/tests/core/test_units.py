import pytest

from flodl.core.units import format_bytes, format_eta, format_metric


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.42, "420ms"),
        (0.9994, "999ms"),
        (0.9996, "1s"),
        (1.2, "1.2s"),
        (1.29, "1.2s"),
        (12, "12s"),
        (59.99, "59.9s"),
        (60, "1m 00s"),
        (272, "4m 32s"),
        (3599.4, "59m 59s"),
        (3600, "1h 00m"),
        (11_520, "3h 12m"),
        (-1, "—"),
        (float("nan"), "—"),
        (float("inf"), "—"),
    ],
)
def test_durations_read_as_people_say_them(seconds, text):
    assert format_eta(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (500 * 1024, "500 KB"),
        (100 * 1024**2, "100 MB"),
        (int(2.1 * 1024**3), "2.1 GB"),
        (3 * 1024**4, "3.0 TB"),
        (5000 * 1024**5, "5000.0 PB"),
    ],
)
def test_bytes_use_units_of_1024(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.0001, "1.00e-4"),
        (-2.5e-12, "-2.50e-12"),
        (0.001, "0.0010"),
        (1.5264, "1.5264"),
        (99.99994, "99.9999"),
        (100, "100.00"),
        (12345.678, "12345.68"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
    ],
)
def test_metrics_keep_four_decimals_below_a_hundred(value, text):
    assert format_metric(value) == text
