import dataclasses
import json

import pytest
import torch

from ddp_bench.overhead import kernels
from ddp_bench.overhead.kernels import FOUR_TIMES, NOT_SLOWER, CaseResult, Interval, KernelsResult
from flodl_sys import names
from flodl_sys.errors import NativeUnavailableError
from flodl_sys.kernels import NativeStatus, status


def case(low, median, high, bar=NOT_SLOWER):
    return CaseResult(
        name="scale f32",
        torch_form="mul(out=)",
        ours_ms=2.0,
        torch_ms=3.0,
        ratio=Interval(low=low, median=median, high=high),
        gbytes_per_s=20.0,
        bar=bar,
    )


def result(*cases):
    return KernelsResult(
        processor="Some CPU",
        torch_version="2.11.0",
        isa="avx2",
        threads=2,
        elements=1000,
        rounds=9,
        copy_gbytes_per_s=10.0,
        cases=cases,
    )


def test_the_interval_is_made_of_order_statistics():
    # 25 values: ranks 7 and 19 enclose the median with at least 99 %
    assert Interval.of(range(1, 26)) == Interval(low=7, median=13, high=19)
    assert Interval.of([3.0, 1.0, 2.0]) == Interval(low=1.0, median=2.0, high=3.0)
    assert Interval.of([5.0]) == Interval(low=5.0, median=5.0, high=5.0)


def test_one_buffer_is_judged_by_the_upper_end_and_the_average_by_the_median():
    assert case(0.8, 0.95, 1.0).holds
    assert not case(0.8, 0.95, 0.99).holds
    assert case(3.0, 4.0, 5.0, FOUR_TIMES).holds
    assert not case(3.0, 3.9, 5.0, FOUR_TIMES).holds


def test_a_run_passes_only_with_every_bar():
    assert result(case(1, 1, 1), case(4, 4, 4, FOUR_TIMES)).passed
    assert not result(case(1, 1, 1), case(3, 3, 3, FOUR_TIMES)).passed


def test_the_table_names_the_machine_the_spread_and_each_missed_bar():
    text = kernels.render(result(case(0.8, 0.9, 1.1), case(0.5, 0.6, 0.7)))
    assert text.splitlines()[0].startswith("Some CPU, 2 threads, avx2; torch 2.11.0; 1,000 elem")
    held, missed = text.splitlines()[-2:]
    assert "0.90 (0.80 to 1.10)" in held
    assert "200%" in held
    assert held.endswith("high >= 1: ok")
    assert missed.endswith("high >= 1: MISSED")


@pytest.mark.parametrize(("cases", "code"), [([case(1, 1, 1)], 0), ([case(0.1, 0.2, 0.3)], 1)])
def test_only_the_gate_turns_a_missed_bar_into_an_exit_code(monkeypatch, capsys, cases, code):
    monkeypatch.setattr(kernels, "run", lambda **settings: result(*cases))
    assert kernels.main([]) == 0
    capsys.readouterr()
    assert kernels.main(["--gate", "--json"]) == code
    facts = json.loads(capsys.readouterr().out)
    assert facts["passed"] is (code == 0)
    assert facts["cases"][0]["holds"] is (code == 0)
    assert facts["cases"][0]["ratio"] == dataclasses.asdict(cases[0].ratio)


def test_a_pure_build_has_nothing_to_measure_and_says_why(monkeypatch, capsys):
    pure = NativeStatus(is_native=False, reason="no C++ compiler found", hint="install g++")
    monkeypatch.setattr(kernels, "status", lambda: pure)
    with pytest.raises(NativeUnavailableError, match="no native kernels to measure: no C\\+\\+"):
        kernels.run(elements=8, rounds=1)
    assert kernels.main([]) == 1
    assert capsys.readouterr().err.endswith("hint: install g++\n")


@pytest.mark.parametrize("wrong", [["--rounds", "0"], ["--elements", "many"], ["--fast"]])
def test_misuse_is_exit_code_two(wrong, capsys):
    with pytest.raises(SystemExit) as stop:
        kernels.main(wrong)
    assert stop.value.code == 2
    assert "usage: python -m ddp_bench.overhead.kernels" in capsys.readouterr().err


def test_a_small_run_measures_every_kernel_and_restores_torchs_threads():
    found = status()
    if not found.is_native:
        assert names.SYS_NATIVE.get() != "1", f"a native build was demanded: {found.reason}"
        pytest.skip(f"pure build of flodl-sys: {found.reason}")
    before = torch.get_num_threads()
    measured = kernels.run(elements=1000, rounds=3, threads=1)
    assert torch.get_num_threads() == before
    assert (measured.threads, measured.elements, measured.isa) == (1, 1000, found.isa)
    assert [c.name for c in measured.cases] == [
        "scale f32",
        "EASGD blend f32",
        "pack bf16",
        "unpack bf16",
        "average 4 x bf16",
    ]
    for c in measured.cases:
        assert 0 < c.ratio.low <= c.ratio.median <= c.ratio.high
    assert measured.copy_gbytes_per_s > 0


def test_the_default_length_goes_beyond_the_last_cache_within_bounds(monkeypatch, tmp_path):
    size = tmp_path / "size"
    for text, elements in (("32768K", 2**24), ("131072K", 2**25), ("999999K", 2**26)):
        size.write_text(text + "\n")
        monkeypatch.setattr(kernels, "CACHE_SIZE", size)
        assert kernels.elements_beyond_cache() == elements
    monkeypatch.setattr(kernels, "CACHE_SIZE", tmp_path / "none")
    assert kernels.elements_beyond_cache() == 2**24
