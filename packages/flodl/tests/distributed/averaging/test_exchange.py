import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.assembly import Assembly, make_exchange
from flodl.distributed.averaging.exchange import Part, Payload, check_weights, fold
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.averaging.solo import SoloExchange
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.collective.graveyard import Graveyard
from flodl.distributed.collective.store import MemoryStore


def test_a_part_is_cut_to_a_shard_and_counted_from_there():
    part = Part(10, 20, is_equal=True)
    assert part.within(0, 15) == Part(10, 15, is_equal=True)
    assert part.within(12, 40) == Part(0, 8, is_equal=True)
    assert part.within(5, 30) == Part(5, 15, is_equal=True)
    assert part.within(20, 30) is None
    assert part.within(0, 10) is None


def test_equal_weights_go_to_those_that_have_any():
    shares = [0.7, 0.0, 0.3]
    assert Part(0, 1).weights(shares) == shares
    assert Part(0, 1, is_equal=True).weights(shares) == [0.5, 0.0, 0.5]


def test_a_zero_weight_hides_a_nan_and_all_zeros_give_zero():
    rows = [torch.tensor([1.0]), torch.tensor([float("nan")]), torch.tensor([3.0])]
    out = torch.empty(1)
    fold(rows, [0.5, 0.0, 0.5], out)
    assert out.item() == 2.0
    fold(rows, [0.0, 0.0, 0.0], out)
    assert out.item() == 0.0


@pytest.mark.parametrize("weights", [[0.5, 0.4], [1.5, -0.5], [float("nan"), 1.0]], ids=str)
def test_weights_that_are_no_shares_are_refused(weights):
    sides = torch.tensor([[weight, 9.0] for weight in weights], dtype=torch.float64)
    with pytest.raises(CollectiveError, match="not 1"):
        check_weights(sides)
    assert check_weights(torch.tensor([[0.25, 0.0], [0.75, 0.0]])) == [0.25, 0.75]


def test_a_lone_rank_gets_its_own_values_in_memory_of_their_own():
    exchange, values = SoloExchange(), torch.arange(3.0)
    side = torch.ones(1, dtype=torch.float64)
    exchange.start(Payload(values=values, parts=(Part(0, 3),), side=side))
    assert exchange.advance()
    values.zero_()
    assert exchange.result.tolist() == [0.0, 1.0, 2.0]
    assert exchange.residual() is None
    with pytest.raises(CollectiveError, match="not 1"):
        exchange.start(Payload(values=values, parts=(Part(0, 3),), side=side / 2))


def test_gpus_in_two_levels_are_refused():
    seats = tuple(Seat(uid=f"u{k}", rank=k, host="h") for k in range(2))
    formation = Formation(
        run="r", nonce="n", generation=1, rank=0, seats=seats, topology="two_level"
    )
    plan = Assembly(
        formation=formation,
        config=PlaneConfig(fabric="nccl"),
        numel=1,
        side=1,
        device=torch.device("cpu"),
    )
    store = ControlStore(MemoryStore())
    with pytest.raises(ConfigError, match="must be 'flat'"):
        make_exchange(plan, store, Graveyard(), interrupted=lambda: False)
