import pytest

from ddp_bench.speed.limits import Limits
from ddp_bench.speed.report import Report

LIMITS = Limits(fp32=50e12, tf32=400e12, bf16=800e12, copy=4e12, kernel_us=1.04)


@pytest.fixture
def rows(make_row):
    return [
        make_row(),
        make_row(arm="flodl-captured", median_epoch_ms=40.0, first_epoch_ms=2000.0),
        make_row(arm="torch-compile-ro", error="no answer within 600 s", median_epoch_ms=None),
    ]


def test_report_names_machine_versions_and_method(rows):
    text = Report(rows).markdown()
    assert text.startswith("# Speed suite: NVIDIA H200\n")
    assert "PyTorch 2.11.0" in text
    assert "lowest median of 3 runs of 20 epochs of 50 batches after 3" in text


def test_report_gives_times_and_both_ratios_of_each_model(rows):
    text = Report(rows).markdown()
    assert "| mlp | 100.0 ± 0.0 | 40.0 ± 0.0 | 0.400 |" in text
    assert "0.400 (flodl-captured / torch-eager)" in text


def test_report_keeps_what_failed_with_its_reason(rows):
    assert "- mlp, torch-compile-ro: no answer within 600 s" in Report(rows).markdown()


def test_report_says_how_far_the_best_arm_is_from_the_floor(rows):
    text = Report(rows, LIMITS).markdown()
    # 24.7 GFLOP at 50 TFLOP/s are 0.494 ms; the best step takes 40 / 50 ms
    assert "| mlp | 24.7 | 729 | 0.494 | 0.182 | 0.800 | 1.6 |" in text


def test_report_says_when_a_longer_start_is_repaid(rows):
    line = next(x for x in Report(rows).markdown().splitlines() if x.startswith("| mlp | flodl-c"))
    # 1500 ms longer, 60 ms an epoch shorter: 25 epochs after the first
    assert line.endswith("| 26 |")


def test_missed_bars_and_failed_arms_are_problems(rows, make_row):
    assert Report(rows[:1]).problems() == []
    broken = make_row(arm="flodl-step", error="out of memory")
    slow = make_row(arm="flodl-graph", median_epoch_ms=150.0)
    problems = Report([rows[0], broken, slow]).problems()
    assert "mlp/flodl-step: out of memory" in problems
    assert any(line.startswith("missed: flodl-graph / torch-eager, mlp") for line in problems)


def test_results_of_a_processor_have_no_gpu(make_row):
    report = Report([make_row(device="cpu", env={"cpu": "AMD EPYC"})], clock="cpu")
    assert report.gpu is None
    assert "Processor times" in report.markdown()
