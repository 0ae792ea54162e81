import gc

import pytest
import torch

from ddp_bench.speed.graph_overhead import (
    Budget,
    Identities,
    Overhead,
    budget_of,
    interval,
    main,
    measure,
    measure_identities,
    share_weights,
)
from ddp_bench.speed.models import BY_NAME


def test_sides_take_turns_call_by_call_without_the_collector():
    calls, collecting = [], []

    def plain():
        calls.append("p")
        collecting.append(gc.isenabled())

    row = measure("x", plain, lambda: calls.append("g"), rounds=2, calls=4)
    assert "".join(calls) == "pggp" + 2 * "pggppggp"
    assert not any(collecting)
    assert gc.isenabled()
    assert row.low <= row.ratio <= row.high


def test_interval_is_that_of_the_median():
    assert interval([1.0] * 5) == (1.0, 1.0)
    low, high = interval([1.0, 1.01, 1.02, 1.03, 9.0])
    assert (low, high) == (1.0, 9.0)
    low, high = interval([1.0 + index / 1000 for index in range(101)])
    assert 1.02 < low < 1.05 < high < 1.08


def test_identities_do_nothing():
    x = torch.ones(2)
    assert Identities(3)(x) is x


def test_graph_of_identities_costs_little_more_than_by_hand():
    best = min(measure_identities(rounds=10).ratio for _ in range(3))
    assert best <= 1.1


def with_extra(microseconds):
    return Overhead("x", 10.0, 10.0 + microseconds, microseconds, 1.0, 1.0, 1.0, 0.0, 1, 1)


def test_budget_is_a_share_a_call_and_a_share_a_node():
    budget = budget_of(with_extra(3.0), with_extra(8.0), (20, 120))
    assert (budget.call_us, budget.node_us) == pytest.approx((2.0, 0.05))
    assert budget.holds
    assert budget.used == pytest.approx(3 / 9)
    assert not budget_of(with_extra(9.1), with_extra(9.1), (20, 120)).holds
    assert not budget_of(with_extra(0.0), with_extra(30.0), (20, 120)).holds
    assert Budget(-1.0, 0.0, -0.1).holds


@pytest.mark.parametrize("name", BY_NAME)
def test_both_sides_compute_with_the_same_tensors(name):
    plain, graph = BY_NAME[name].pair(is_small=True)
    share_weights(plain, graph)
    places = {tensor.data_ptr() for tensor in plain.parameters()}
    assert {tensor.data_ptr() for tensor in graph.parameters()} == places
    inputs, _ = BY_NAME[name].small.batch(torch.Generator().manual_seed(0))
    plain.eval(), graph.eval()
    assert torch.allclose(plain(inputs), graph(inputs), atol=1e-5)


def test_different_models_share_nothing():
    plain, _ = BY_NAME["mlp"].pair(is_small=True)
    _, graph = BY_NAME["gated_routing"].pair(is_small=True)
    with pytest.raises(ValueError, match="hold different weights"):
        share_weights(plain, graph)


def test_table_is_printed_and_the_bar_decides(capsys):
    assert main(["--rounds", "2", "--models", "mlp", "--bar", "100"]) == 0
    assert main(["--rounds", "2", "--models", "mlp", "--bar", "0"]) == 1
    out = capsys.readouterr().out
    assert "above 0.0: mlp" in out
    assert "95 % interval" in out
    assert "us a node" in out
    with pytest.raises(KeyError):
        main(["--models", "unknown"])
