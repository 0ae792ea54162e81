"""What a rank says of a window: sums that are told once, or again with the window that follows."""

from types import SimpleNamespace

import pytest

from flodl.distributed.worker.meter import WindowMeter
from flodl.metrics.scalars import ScalarScope


def train(meter, losses, samples=8, **scalars):
    for loss in losses:
        meter.expect(samples)
        meter.add(SimpleNamespace(values=[loss]))
        meter.compute_ms += 10.0
        meter.starve_ms += 1.0
        for name, value in scalars.items():
            meter.scalars.add(name, value)


def test_each_report_tells_what_came_since_the_last():
    meter = WindowMeter(ScalarScope())
    train(meter, [1.0, 3.0], accuracy=0.5)
    told = meter.take(0.1)
    assert (told.loss, told.lr, told.scalars) == (2.0, 0.1, {"accuracy": 0.5})
    assert told.timing == {"compute_ms": 20.0, "starve_ms": 2.0}
    empty = meter.take(0.1)
    assert (empty.loss, empty.scalars) == (None, {})
    assert empty.timing == {"compute_ms": 0.0, "starve_ms": 0.0}


def test_a_report_that_came_to_nothing_is_told_again_with_what_came_since():
    meter = WindowMeter(ScalarScope())
    train(meter, [1.0], accuracy=0.25, size=4.0)
    meter.take(0.1)
    train(meter, [4.0, 4.0], accuracy=1.0, late=7.0)
    meter.put_back()
    told = meter.take(0.2)
    assert told.loss == pytest.approx(3.0)
    assert told.scalars == pytest.approx({"accuracy": 0.75, "size": 4.0, "late": 7.0})
    assert told.timing == {"compute_ms": 30.0, "starve_ms": 3.0}
    meter.put_back()
    meter.put_back()  # once is enough
    assert meter.take(0.2).timing == {"compute_ms": 30.0, "starve_ms": 3.0}
