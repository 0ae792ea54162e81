import torch

from ddp_bench.coverage import INDEX, Coverage, CoverageTally, indexed
from flodl import Batch, TensorDataSet


def batch(indices, epoch):
    return Batch([torch.tensor(indices)], [INDEX], epoch=epoch)


def test_samples_carry_their_index():
    data = indexed(TensorDataSet(image=torch.zeros(5, 1), label=torch.arange(5)))
    assert data.names == ("image", "label", INDEX)
    rows = data.get_batch([4, 1])
    assert rows[2].tolist() == [4, 1] == rows[1].tolist()


def test_complete_passes_are_exact():
    tally = CoverageTally(5, 2)
    for epoch, order in enumerate([[0, 1, 2, 3], [4, 3, 2, 1]]):
        tally.add(batch(order[:2], epoch))
        tally.add(batch(order[2:], epoch))
    assert tally.result() == Coverage(expected=8, seen=8, duplicates=0)


def test_sample_that_comes_twice_in_a_pass_is_counted_as_such():
    tally = CoverageTally(4, 2)
    tally.add(batch([0, 1], 0))
    tally.add(batch([1, 2], 0))
    assert tally.result() == Coverage(expected=4, seen=3, duplicates=1)


def test_same_sample_in_two_passes_is_no_duplicate():
    tally = CoverageTally(1, 1)
    tally.add(batch([0], 0))
    tally.add(batch([0], 1))
    assert tally.result() == Coverage(expected=2, seen=2, duplicates=0)


def test_interrupted_pass_is_expected_in_full():
    tally = CoverageTally(4, 2)
    tally.add(batch([0, 1], 0))
    assert tally.result() == Coverage(expected=4, seen=2, duplicates=0)


def test_run_without_a_step_covers_nothing():
    assert CoverageTally(4, 2).result() == Coverage(expected=0, seen=0, duplicates=0)
