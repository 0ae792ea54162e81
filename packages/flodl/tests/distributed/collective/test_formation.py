import pytest

from flodl.core.errors import ConfigError
from flodl.distributed.collective.formation import Formation, Seat


def formation(hosts, rank=0):
    seats = tuple(Seat(uid=f"{host}/{k}", rank=k, host=host) for k, host in enumerate(hosts))
    return Formation(run="r", nonce="n", generation=3, rank=rank, seats=seats)


def test_the_first_rank_of_each_host_leads_it():
    whole = formation("abab", rank=3)
    assert whole.leaders == (0, 1)
    assert (whole.is_leader, whole.host_ranks, whole.ranks_of(0)) == (False, (1, 3), (0, 2))
    assert formation("abab", rank=1).is_leader
    assert (whole.world_size, whole.seat.uid) == (4, "b/3")


def test_keys_of_generations_and_groups_are_apart():
    assert formation("a").prefix("average") == "r/n/3/average"
    assert Formation.of_size(2, 1, generation=4).prefix("x") == "local/0/4/x"


@pytest.mark.parametrize(("ranks", "own"), [([0, 2], 0), ([1, 0], 0), ([0, 1], 2), ([], 0)])
def test_seats_that_are_no_ranks_are_refused(ranks, own):
    seats = tuple(Seat(uid=f"u{rank}", rank=rank, host="h") for rank in ranks)
    with pytest.raises(ConfigError, match="must be"):
        Formation(run="r", nonce="n", generation=1, rank=own, seats=seats)
