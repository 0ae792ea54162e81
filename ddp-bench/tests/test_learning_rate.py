import pytest

from ddp_bench.learning_rate import choose_rate


@pytest.mark.parametrize("epochs", [1, 5])
def test_default_amount_or_less_keeps_the_rate(epochs):
    rate = choose_rate(1e-3, epochs=epochs, default_epochs=5)
    assert (rate.value, rate.note) == (1e-3, None)


def test_longer_run_gets_a_smaller_rate_and_says_so():
    rate = choose_rate(1e-3, epochs=20, default_epochs=5)
    assert rate.value == pytest.approx(2.5e-4)
    assert rate.note == "0.001 x 5 / 20 epochs; --no-lr-autoscale keeps it"


def test_autoscale_can_be_turned_off():
    assert choose_rate(1e-3, epochs=20, default_epochs=5, autoscale=False).note is None


def test_explicit_scale_replaces_the_automatic_one():
    rate = choose_rate(1e-3, epochs=20, default_epochs=5, scale=2.0)
    assert rate.value == pytest.approx(2e-3)
    assert rate.note == "0.001 x 2, as --lr-scale says"
