import pytest
import torch

from ddp_bench.speed.graph_overhead import Identities, main, measure, measure_identities


def test_rounds_alternate_and_the_ratio_is_that_of_the_medians():
    calls = []
    row = measure("x", lambda: calls.append("p"), lambda: calls.append("g"), rounds=2, calls=1)
    assert "".join(calls) == "pggppggp"
    assert row.ratio > 0


def test_identities_do_nothing():
    x = torch.ones(2)
    assert Identities(3)(x) is x


def test_graph_of_identities_costs_little_more_than_by_hand():
    best = min(measure_identities(rounds=10).ratio for _ in range(3))
    assert best <= 1.1


def test_table_is_printed_and_the_bar_decides(capsys):
    assert main(["--rounds", "2", "--models", "mlp", "--bar", "100"]) == 0
    assert main(["--rounds", "2", "--models", "mlp", "--bar", "0"]) == 1
    out = capsys.readouterr().out
    assert "above 0.0: mlp" in out
    with pytest.raises(KeyError):
        main(["--models", "unknown"])
