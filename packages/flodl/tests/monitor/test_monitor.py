import io
from datetime import timedelta

import pytest

from flodl.core.errors import ConfigError
from flodl.metrics import EpochMetrics
from flodl.monitor import EtaEstimator, Monitor
from flodl.monitor.console import ConsoleLines, VramReading

GIB = 1024**3


class FakeClock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def epoch_durations():
    """The run of the README: set-up 420 ms, then 100 epochs that get faster."""
    return [0.049] + [0.025] * 9 + [0.024] * 40 + [0.023] * 50


def logged_lines(vram=None):
    clock = FakeClock()
    estimator, lines = EtaEstimator(100), ConsoleLines(100)
    losses = {0: 1.5264, 9: 0.3817, 49: 0.0023, 99: 0.0012}
    clock.now += 0.42
    printed = {}
    for epoch, duration in enumerate(epoch_durations()):
        clock.now += duration
        eta = estimator.observe(epoch, duration, clock.now)
        printed[epoch] = lines.epoch(
            epoch,
            duration,
            {"loss": losses.get(epoch, 1.0)},
            eta=None if epoch == 99 else eta,
            vram=vram if epoch else None,
        )
    return [printed[epoch] for epoch in (0, 9, 49, 99)]


def test_console_lines_are_those_of_the_readme_byte_for_byte():
    vram = VramReading(used_bytes=int(2.1 * GIB), total_bytes=6 * GIB, util_percent=82)
    assert logged_lines(vram) == [
        "  epoch   1/100  loss=1.5264  [49ms  ETA 4.8s]",
        "  epoch  10/100  loss=0.3817  [25ms  ETA 2.2s]  VRAM: 2.1/6.0 GB (82%)",
        "  epoch  50/100  loss=0.0023  [24ms  ETA 1.2s]  VRAM: 2.1/6.0 GB (82%)",
        "  epoch 100/100  loss=0.0012  [23ms]             VRAM: 2.1/6.0 GB (82%)",
    ]


def test_lines_without_a_vram_reading_end_at_the_bracket():
    assert all(line.endswith("]") for line in logged_lines())


def test_vram_shares_the_unit_of_the_total_and_names_spill():
    reading = VramReading(used_bytes=7 * GIB, total_bytes=6 * GIB, util_percent=99.6)
    line = ConsoleLines(2).epoch(0, 1.0, {}, eta=1.0, vram=reading)
    assert line == "  epoch 1/2  [1s  ETA 1s]  VRAM: 7.0/6.0 GB (100%) +1.0 GB spill"
    small = VramReading(used_bytes=256 * 1024**2, total_bytes=512 * 1024**2, util_percent=0)
    assert (
        ConsoleLines(1)
        .epoch(0, 1.0, {}, eta=None, vram=small)
        .endswith("[1s]  VRAM: 256/512 MB (0%)")
    )


def run_with_evaluations(every, factor, total=100):
    clock, estimator, etas = FakeClock(), EtaEstimator(total), []
    remaining_truth = []
    walls = [1.0 * (factor if (e + 1) % every == 0 else 1) for e in range(total)]
    for epoch in range(total):
        clock.now += walls[epoch]
        etas.append(estimator.observe(epoch, 1.0, clock.now))
        remaining_truth.append(sum(walls[epoch + 1 :]))
    return etas, remaining_truth


def test_a_long_evaluation_every_tenth_epoch_keeps_the_estimate_within_a_quarter():
    etas, truth = run_with_evaluations(every=10, factor=10)
    for epoch in range(19, 80):
        assert etas[epoch] == pytest.approx(truth[epoch], rel=0.25), epoch


def test_a_permanent_slowdown_is_exact_from_its_third_epoch():
    clock, estimator = FakeClock(), EtaEstimator(40)
    for epoch in range(40):
        wall = 1.0 if epoch < 12 else 4.0
        clock.now += wall
        eta = estimator.observe(epoch, wall, clock.now)
        if epoch >= 14:
            assert eta == pytest.approx(4.0 * (39 - epoch)), epoch


def test_setup_time_and_the_first_epoch_leave_the_estimate():
    clock, estimator = FakeClock(), EtaEstimator(10)
    clock.now += 60
    clock.now += 5
    estimator.observe(0, 5.0, clock.now)
    clock.now += 1
    assert estimator.observe(1, 1.0, clock.now) == pytest.approx(8.0)


def test_a_resumed_run_counts_from_its_start_epoch():
    clock, estimator = FakeClock(), EtaEstimator(10)
    clock.now += 2
    assert estimator.observe(7, 2.0, clock.now) == pytest.approx(4.0)


def metrics(epoch=0, **changes):
    values = dict(
        epoch=epoch,
        avg_loss=0.5,
        epoch_ms=250.0,
        batches_processed=1,
        samples_processed=1,
        scalars={"b": 2.0, "a": 1.0},
        eval={"accuracy": 0.9},
        lr=0.1,
    )
    return EpochMetrics(**{**values, **changes})


def test_the_loss_comes_first_then_the_evaluation_then_scalars_by_name():
    out = io.StringIO()
    monitor = Monitor(1, stream=out, clock=FakeClock())
    record = monitor.log(0, timedelta(milliseconds=250), metrics())
    assert list(record.metrics) == ["loss", "accuracy", "a", "b"]
    assert out.getvalue() == (
        "  epoch 1/1  loss=0.5000  accuracy=0.9000  a=1.0000  b=2.0000  [250ms]\n"
    )


def test_the_name_heads_the_lines_once_and_the_summary_closes_them():
    out, clock = io.StringIO(), FakeClock()
    with Monitor(2, name="mlp", stream=out, clock=clock) as monitor:
        for epoch in range(2):
            clock.now += 1.4
            monitor.log(epoch, 1.4, {"loss": 0.0012 + epoch})
    assert out.getvalue().splitlines() == [
        "mlp",
        "  epoch 1/2  loss=0.0012  [1.4s  ETA 1.4s]",
        "  epoch 2/2  loss=1.0012  [1.4s]",
        "  training complete in 2.8s  | loss: 1.0012",
    ]


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "failed"), (KeyboardInterrupt, "aborted")]
)
def test_an_exception_inside_the_block_shows_in_the_summary(error, status):
    out = io.StringIO()
    with pytest.raises(error), Monitor(2, stream=out, clock=FakeClock()) as monitor:
        monitor.log(0, 1.0, {})
        raise error
    assert out.getvalue().splitlines()[-1] == f"  training {status} in 0ms"


def test_finishing_twice_prints_one_summary_and_no_log_follows():
    out = io.StringIO()
    monitor = Monitor(1, stream=out, clock=FakeClock())
    monitor.finish()
    monitor.finish()
    assert out.getvalue().count("training complete") == 1
    with pytest.raises(ConfigError, match="has finished"):
        monitor.log(0, 1.0, {})


def test_progress_none_prints_nothing_and_still_records():
    out = io.StringIO()
    monitor = Monitor(1, progress="none", stream=out)
    monitor.log(0, 1.0, {"loss": 1})
    monitor.finish()
    assert out.getvalue() == ""
    assert monitor.history[0].metrics == {"loss": 1.0}


def test_an_epoch_before_the_run_is_refused():
    with pytest.raises(ConfigError, match=r"epoch=-1.*\[0, 3\)"):
        Monitor(3, progress="none").log(-1, 1.0, {})


def test_an_epoch_beyond_the_run_lengthens_it_with_one_warning(caplog):
    out = io.StringIO()
    monitor = Monitor(3, stream=out, clock=FakeClock())
    monitor.log(3, 1.0, {})
    monitor.log(4, 1.0, {})
    assert [line[:11] for line in out.getvalue().splitlines()] == ["  epoch 4/4", "  epoch 5/5"]
    assert monitor.total_epochs == 5
    assert caplog.text.count("the total grows with them") == 1


@pytest.mark.parametrize("arguments", [(0, 0), (3, 3), (3, -1)])
def test_a_run_of_no_epochs_is_refused(arguments):
    with pytest.raises(ConfigError, match="Monitor"):
        Monitor(arguments[0], start_epoch=arguments[1])


def test_lines_go_to_standard_error_unless_told_otherwise(capsys):
    with Monitor(1) as monitor:
        monitor.log(0, 0.049, {"loss": 1.5264})
    seen = capsys.readouterr()
    assert seen.err.splitlines()[0] == "  epoch 1/1  loss=1.5264  [49ms]"
    assert seen.out == ""


def test_inside_an_epoch_the_rest_of_it_counts():
    estimator = EtaEstimator(10)
    assert estimator.within(0, 0.5) is None
    estimator.observe(0, 2.0, now=2.0)
    assert estimator.within(1, 0.0) == 18.0
    assert estimator.within(1, 0.25) == 17.5
    assert estimator.within(9, 0.5) == 1.0


def test_reports_within_an_epoch_say_how_much_time_is_left():
    clock = FakeClock()
    with Monitor(4, progress="none", clock=clock) as monitor:
        monitor.reports_per_epoch(2)
        seen = []
        for epoch in range(2):
            with monitor.epoch(epoch, steps=4) as scope:
                for _ in range(4):
                    clock.now += 1
                    scope.step(loss=1.0)
                    seen.append(monitor.board.progress.get("eta"))
    assert seen[:4] == [None] * 4
    assert seen[4:] == [12.0, 10.0, 10.0, 8.0]


def test_an_epoch_of_unknown_length_is_taken_to_be_as_long_as_the_one_before():
    clock = FakeClock()
    with Monitor(2, progress="none", clock=clock) as monitor:
        monitor.reports_per_epoch(2)
        ticks = []
        for epoch in range(2):
            with monitor.epoch(epoch) as scope:
                for _ in range(8):
                    clock.now += 1
                    scope.step(loss=1.0)
        rows = [r.body() for r in monitor.board.tree.recent_rows("root", 20)]
    ticks = [(r["epoch"], r["step"]) for r in rows if "tick" in r]
    # every five seconds in the first, halves in the second
    assert ticks == [(0, 6), (1, 12), (1, 16)]
