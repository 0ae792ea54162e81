import torch

from flodl.distributed.worker.checkpoints.balance import balanced


def shares(sizes, ranks, *, lead=0, held=0, own=()):
    tensors = {name: torch.zeros(size) for name, size in sizes.items()}
    return balanced(tensors, ranks, lead=lead, held_bytes=held, own=set(own))


def load(share):
    return sum(tensor.nbytes for tensor in share.values())


def test_every_tensor_is_written_once_and_all_write_about_as_much():
    sizes = {f"w{index}": 100 + 7 * index for index in range(40)}
    found = shares(sizes, 4)
    assert sorted(name for share in found for name in share) == sorted(sizes)
    loads = [load(share) for share in found]
    assert max(loads) - min(loads) <= 4 * max(sizes.values())


def test_the_one_that_writes_the_optimizer_writes_less_of_the_model():
    found = shares({f"w{index}": 100 for index in range(30)}, 3, lead=1, held=4000)
    written = [load(share) + 4000 * (rank == 1) for rank, share in enumerate(found)]
    assert sum(written) == 16000
    assert max(written) - min(written) <= 400


def test_what_differs_between_ranks_is_the_leads():
    found = shares({"big": 1000, "local": 10, "w": 10}, 2, lead=1, held=10**6, own=["local"])
    assert set(found[1]) == {"local"}


def test_names_of_one_memory_stay_together():
    tied = torch.zeros(50)
    tensors = {"a": tied, "z": tied, "b": torch.zeros(40), "c": torch.zeros(10), "none": tied[:0]}
    found = balanced(tensors, 2, lead=0, held_bytes=0, own=set())
    assert {frozenset(share) for share in found} == {
        frozenset({"a", "z", "none"}), frozenset({"b", "c"})
    }  # fmt: skip
