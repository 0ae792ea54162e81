from __future__ import annotations

import pytest
import torch

from flodl.core.errors import BatchKeyError, ConfigError, FlodlError, SampleError
from flodl.data import Batch


def sample_batch() -> Batch:
    return Batch(
        [torch.arange(6.0).view(3, 2), torch.tensor([7, 8, 9])],
        ["image", "label"],
        epoch=4,
        index=2,
        static={"has_padding": True},
    )


def test_tensors_are_reached_by_position_and_by_name() -> None:
    batch = sample_batch()
    assert batch[0] is batch["image"]
    assert batch[-1] is batch[1] is batch["label"]
    assert (len(batch), batch.size, batch.names) == (2, 3, ("image", "label"))
    assert (batch.epoch, batch.index, batch.static) == (4, 2, {"has_padding": True})


def test_a_batch_unpacks_into_its_tensors() -> None:
    batch = sample_batch()
    image, label = batch
    assert image is batch[0]
    assert label is batch[1]
    assert batch.into_list() == [image, label]
    assert list(batch.as_dict()) == ["image", "label"]


def test_an_unknown_name_is_a_key_error_that_lists_the_names() -> None:
    with pytest.raises(KeyError) as caught:
        sample_batch()["target"]
    assert isinstance(caught.value, BatchKeyError)
    assert str(caught.value) == "batch['target']: no such tensor; names: image, label"


def test_a_position_outside_is_an_index_error_that_counts_the_tensors() -> None:
    with pytest.raises(IndexError, match=r"batch\[2\]: the batch has 2 tensors: image, label"):
        sample_batch()[2]


def test_get_named_and_has_do_not_raise() -> None:
    batch = sample_batch()
    assert batch.has("label")
    assert not batch.has("target")
    assert batch.get_named("target") is None
    assert batch.get_named("label") is batch[1]


def test_unnamed_tensors_are_named_by_position() -> None:
    assert Batch([torch.zeros(1), torch.zeros(1)]).names == ("0", "1")


def test_clone_owns_its_tensors() -> None:
    batch = sample_batch()
    copy = batch.clone()
    copy[0].zero_()
    assert batch[0].sum() == 15
    assert (copy.names, copy.epoch, copy.index, copy.static) == (
        batch.names,
        4,
        2,
        {"has_padding": True},
    )


def test_to_moves_every_tensor_and_keeps_the_rest() -> None:
    moved = sample_batch().to("meta")
    assert [tensor.device.type for tensor in moved] == ["meta", "meta"]
    assert (moved.names, moved.epoch, moved.index, moved.size) == (("image", "label"), 4, 2, 3)


def test_a_static_batch_stays_static_only_while_it_shares_memory() -> None:
    batch = Batch([torch.zeros(2)], is_static=True)
    assert batch.to("cpu").is_static
    assert not batch.clone().is_static
    assert not batch.to("meta").is_static


def test_replace_exchanges_tensors_by_name() -> None:
    batch = sample_batch()
    changed = batch.replace({"image": batch["image"] * 2})
    assert torch.equal(changed["image"], batch["image"] * 2)
    assert changed["label"] is batch["label"]
    assert changed.epoch == 4
    with pytest.raises(BatchKeyError, match="target"):
        batch.replace({"target": torch.zeros(3)})
    with pytest.raises(SampleError, match=r"\[2, 3\] rows"):
        batch.replace({"image": torch.zeros(2)})


@pytest.mark.parametrize(
    ("tensors", "names", "error", "says"),
    [
        ([], None, ConfigError, "no tensors"),
        ([torch.tensor(1.0)], None, SampleError, "single number"),
        ([[1, 2]], None, ConfigError, "tensor 0 of a batch is a list"),
        ([torch.zeros(2), torch.zeros(3)], None, SampleError, r"\[2, 3\] rows"),
        ([torch.zeros(2)], ["a", "b"], ConfigError, "2 names for 1 tensors"),
        ([torch.zeros(2), torch.zeros(2)], ["a", "a"], ConfigError, "a given more than once"),
        ([torch.zeros(2)], "a", ConfigError, "expected a sequence of strings"),
        ([torch.zeros(2)], [0], ConfigError, "expected a sequence of strings"),
    ],
)
def test_unusable_parts_are_refused(
    tensors: list[torch.Tensor], names: list[str], error: type[FlodlError], says: str
) -> None:
    with pytest.raises(error, match=says):
        Batch(tensors, names)


def test_the_repr_shows_names_types_and_shapes() -> None:
    assert repr(sample_batch()) == (
        "Batch(epoch=4, index=2, image: float32[3, 2], label: int64[3])"
    )


@pytest.mark.cuda
def test_pinned_copies_are_page_locked() -> None:
    assert all(tensor.is_pinned() for tensor in sample_batch().pin_memory())
