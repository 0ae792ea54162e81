"""What the loader saves after a loop on several devices leads any loop to the next batch."""

import itertools

import pytest
import torch
from torch import nn

from flodl.data import DataLoader, TensorDataSet
from flodl.distributed.collective.errors import PayloadMismatchError
from flodl.distributed.collective.rendezvous import Rendezvous
from flodl.distributed.replica import DdpConfig
from flodl.distributed.replica.spreading import as_rank
from flodl.distributed.replica.surroundings import RankPlace
from flodl.graph import FlowBuilder

CPU = torch.device("cpu")
DATA = TensorDataSet(x=torch.arange(50.0)[:, None])


def build(device="cpu"):
    return FlowBuilder(nn.Linear(1, 1)).build()


def loader_of(**options):
    return DataLoader(DATA, **{"batch_size": 8, "drop_last": False, "seed": 3, **options})


def rows(batches):
    return [batch["x"].flatten().tolist() for batch in batches]


def samples(batches):
    return list(itertools.chain(*rows(batches)))


@pytest.fixture
def reading(fakes):
    """Return a graph on so many devices that reads from a loader."""

    def ready(count, loader, config=None):
        return fakes(count, make=build, loader=lambda: loader, config=config)

    return ready


@pytest.mark.parametrize(
    "options", [{}, {"streaming": True, "prefetch": 2}], ids=["there", "ahead"]
)
@pytest.mark.parametrize(("first", "then"), [(2, 1), (1, 2), (3, 3), (2, 3)])
def test_an_epoch_goes_on_where_it_was_left(reading, first, then, options):
    wanted = rows(reading(1, loader_of()).epoch(4))
    loader = loader_of(**options)
    taken = rows(itertools.islice(reading(first, loader).epoch(4), 3))
    state = loader.state_dict()
    assert (state["epoch"], state["batches"], state["samples_consumed"]) == (4, 3, 24)

    loader = loader_of(**options)
    loader.load_state_dict(state)
    graph = reading(then, loader)
    left = graph.epoch(4)
    assert len(left) == len(wanted) - 3
    batches = list(left)
    assert taken + rows(batches) == wanted
    assert [batch.index for batch in batches] == [3, 4, 5, 6]
    assert loader.state_dict()["is_complete"]
    assert len(rows(graph.epoch(5))) == 7, "the next one is whole"
    assert len(rows(graph.epoch(5))) == 7, "so is one that is begun again"


def test_whole_batches_are_counted(reading):
    config = DdpConfig(max_anchor=2, speed_hint=(0, 2.0))
    wanted = samples(reading(1, loader_of()).epoch(0))
    loader = loader_of()
    (taken,) = rows(itertools.islice(reading(2, loader, config).epoch(0), 1))
    state = loader.state_dict()
    assert state["batches"] * 8 == state["samples_consumed"] == len(taken)
    loader = loader_of()
    loader.load_state_dict(state)
    assert taken + samples(reading(2, loader, config).epoch(0)) == wanted


def test_other_batches_take_up_what_is_left(reading):
    loader = loader_of()
    taken = rows(itertools.islice(reading(2, loader).epoch(0), 2))
    smaller = loader_of(batch_size=5)
    smaller.load_state_dict(loader.state_dict(), strict=False)
    left = rows(reading(2, smaller).epoch(0))
    assert [len(batch) for batch in left] == [5] * 6 + [4]
    assert sorted(itertools.chain(*taken, *left)) == list(range(50))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_sampler_that_draws_anew_each_time_is_asked_once(reading, count):
    loader = loader_of(sampler=torch.utils.data.RandomSampler(range(50)))
    graph = reading(count, loader)
    for epoch in range(2):
        assert sorted(samples(graph.epoch(epoch))) == list(range(50))


def test_ranks_that_read_in_orders_of_their_own_are_told(thread_ranks):
    meeting = Rendezvous.local(2)

    def rank(k):
        graph = build()
        place = RankPlace(rank=k, world_size=2, device=CPU, meeting=meeting)
        graph.bind_stepper(as_rank(graph, place))
        graph.set_optimizer(lambda parameters: torch.optim.SGD(parameters, lr=0.1))
        graph.set_data_loader(loader_of(seed=k), "x")
        batch = next(graph.epoch(0))
        graph.forward_batch(batch).mean().backward()
        with pytest.raises(PayloadMismatchError, match=r"ranks \[1\] read the epoch in another"):
            graph.step()

    thread_ranks(2, rank)


def test_the_state_is_the_same_on_all_ranks(thread_ranks):
    meeting = Rendezvous.local(3)

    def rank(k):
        graph = build()
        place = RankPlace(rank=k, world_size=3, device=CPU, meeting=meeting)
        graph.bind_stepper(as_rank(graph, place))
        loader = loader_of()
        graph.set_data_loader(loader, "x")
        list(itertools.islice(graph.epoch(1), 4))
        return loader.state_dict()

    first, *others = thread_ranks(3, rank)
    assert first["samples_consumed"] == 32
    assert others == [first, first]
