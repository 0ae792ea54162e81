"""Every row of an epoch reaches one device, whatever the shares and however they change."""

import random
from types import SimpleNamespace

import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.data import DataLoader, TensorDataSet
from flodl.distributed.elche.partition import clamp_total, equal_split
from flodl.distributed.replica.feeding import (
    LeasedFeeding,
    SlicedFeeding,
    feeding_of,
    gather_device,
)

CPU = torch.device("cpu")


class RandomDeal:
    """Shares that are drawn anew for each batch, the same for equal seeds."""

    def __init__(self, world, seed, *, deals_whole):
        self.deals_whole = deals_whole
        self._world = world
        self._rng = random.Random(seed)

    def sizes(self, rows):
        cuts = sorted(self._rng.randint(0, rows) for _ in range(self._world - 1))
        return [stop - start for start, stop in zip([0, *cuts], [*cuts, rows], strict=True)]

    def counts(self, batches):
        wanted = [self._rng.randint(0, 3) for _ in range(self._world)]
        wanted = wanted if sum(wanted) else equal_split(self._world, self._world)
        return wanted if batches is None else clamp_total(wanted, batches)


def loader_of(count, **options):
    data = TensorDataSet(x=torch.arange(count))
    return DataLoader(data, **{"batch_size": 4, "seed": 5, **options})


def turns(feeding, deal, epoch=0):
    feeding.begin(epoch, deal)
    while (turn := feeding.take()) is not None:
        yield turn
    feeding.end()


def rows_of(turn):
    return [[x for batch in own for x in batch["x"].tolist()] for own in turn.shards]


@pytest.mark.parametrize("whole", [False, True], ids=["split", "dealt"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind", ["leased", "sliced"])
def test_devices_take_the_epoch_between_them_in_its_order(whole, drop_last, kind):
    for seed in range(6):
        world, count = 1 + seed % 4, 17 + 7 * seed
        source = loader_of(count, drop_last=drop_last)
        wanted = [x for batch in source.epoch(seed) for x in batch["x"].tolist()]
        source = loader_of(count, drop_last=drop_last)
        if kind == "sliced":
            feeding = SlicedFeeding(source, [CPU] * world, range(world))
        else:
            feeding = feeding_of(source, [CPU] * world, range(world))
            assert isinstance(feeding, LeasedFeeding)
        found = []
        for turn in turns(feeding, RandomDeal(world, seed, deals_whole=whole), seed):
            rows = rows_of(turn)
            assert [len(own) for own in rows] == list(turn.rows)
            assert [len(own) for own in turn.shards] == [
                count if whole else int(count > 0) for count in turn.counts
            ]
            found += [x for own in rows for x in own]
        assert found == wanted


def test_ranks_apart_take_what_they_take_together():
    deals = [RandomDeal(3, 1, deals_whole=False) for _ in range(4)]
    together = turns(feeding_of(loader_of(50), [CPU] * 3, range(3)), deals[0])
    apart = [turns(feeding_of(loader_of(50), [CPU], [rank]), deals[1 + rank]) for rank in range(3)]
    for whole, *own in zip(together, *apart, strict=True):
        assert rows_of(whole) == [rows_of(turn)[0] for turn in own]
        assert {turn.rows for turn in own} == {whole.rows}


def test_an_epoch_that_was_left_is_forgotten():
    feeding = feeding_of(loader_of(40), [CPU] * 2, range(2))
    deal = RandomDeal(2, 3, deals_whole=False)
    feeding.begin(0, deal)
    feeding.take()
    found = [x for turn in turns(feeding, deal, 1) for own in rows_of(turn) for x in own]
    assert sorted(found) == list(range(40))


def test_the_loader_that_is_there_serves_the_first_device():
    source = loader_of(40, transform=None, storage_dtype=None)
    first, second = feeding_of(source, [CPU] * 2, range(2)).loaders
    assert first is source
    assert (second.batch_size, second.device) == (4, CPU)


@pytest.mark.parametrize(
    ("resident", "place"),
    [((True, True, True), "cuda:2"), ((True, True, False), "cuda:0"), ((False,) * 3, "cpu")],
)
def test_rows_come_together_on_the_resident_device_with_most_room(monkeypatch, resident, place):
    free = [20, 10, 30]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device.index], 40))
    loaders = [
        SimpleNamespace(device=torch.device("cuda", k), is_resident=is_there)
        for k, is_there in enumerate(resident)
    ]
    assert gather_device(loaders) == torch.device(place)
    assert gather_device(loaders[:1]) == torch.device("cuda:0")


def test_a_loader_of_something_else_is_refused():
    class Tuples:
        names = ("x",)

        def epoch(self, number):
            yield (torch.ones(4),)

    feeding = feeding_of(Tuples(), [CPU] * 2, range(2))
    with pytest.raises(ConfigError, match="gives a tuple: expected a Batch"):
        list(turns(feeding, RandomDeal(2, 0, deals_whole=False)))
