import pytest
import torch

from ddp_bench.transformer import __main__ as program
from ddp_bench.transformer import speed
from ddp_bench.transformer.pairs import make_pair
from ddp_bench.transformer.speed import Timing, measure

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 50}


def test_a_cell_is_measured_in_rounds_of_both(tmp_path):
    torch.set_num_threads(1)
    pair = make_pair("bert", 1, tmp_path, torch.device("cpu"), torch.float32, **SMALL)
    for mode in ("forward", "step"):
        timing = measure(pair, mode, 2, 8, rounds=4)
        assert (timing.family, timing.mode, timing.batch, timing.length) == ("bert", mode, 2, 8)
        assert timing.low <= timing.ratio <= timing.high
        assert timing.ours_ms > 0
        assert timing.reference_ms > 0


def timing(mode, ratio):
    return Timing(
        family="bert",
        mode=mode,
        batch=1,
        length=1,
        reference_ms=1.0,
        ours_ms=ratio,
        ratio=ratio,
        low=ratio,
        high=ratio,
        rounds=3,
    )


def test_the_bar_is_on_the_geometric_mean_of_each_mode():
    held = [timing("forward", 2.0), timing("forward", 0.5), timing("step", 0.9)]
    assert program._missed(held, None, program.BARS) == []
    missed = [*held, timing("step", 1.3)]
    assert program._missed(missed, None, program.BARS) == ["step 1.082"]


def test_on_a_gpu_the_eager_step_has_no_bar_and_the_captured_one_a_lower_one():
    found = [timing("forward", 1.0), timing("step", 1.4), timing("captured", 0.7)]
    assert program._missed(found, None, program.GPU_BARS) == []
    found.append(timing("captured", 0.9))
    assert program._missed(found, None, program.GPU_BARS) == ["captured 0.794"]


def test_slow_cells_get_fewer_rounds(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(speed, "_CELL_SECONDS", 0.0)
    pair = make_pair("bert", 1, tmp_path, torch.device("cpu"), torch.float32, **SMALL)
    assert measure(pair, "forward", 1, 4, rounds=9).rounds == 2


def test_models_that_differ_are_not_timed(tmp_path):
    pair = make_pair("bert", 1, tmp_path, torch.device("cpu"), torch.float32, **SMALL)
    with torch.no_grad():
        pair.ours.get_parameter("classifier.bias").add_(1)
    with pytest.raises(AssertionError, match="not close"):
        measure(pair, "forward", 1, 4, rounds=2)


@pytest.mark.cuda
def test_a_captured_step_is_measured(tmp_path):
    pair = make_pair("bert", 1, tmp_path, torch.device("cuda"), torch.bfloat16, **SMALL)
    assert measure(pair, "captured", 2, 8, rounds=3).ours_ms > 0


def test_the_gate_is_the_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(program, "_timings", lambda args, device: [timing("forward", 1.5)])
    assert program.main(["--speed-only", "--gate"]) == 1
    assert "missed: forward 1.500" in capsys.readouterr().out
    assert program.main(["--speed-only"]) == 0
