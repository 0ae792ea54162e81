import pytest
import torch
from torch import nn

from flodl.core.errors import BatchKeyError, ConfigError, SampleError
from flodl.data import Batch
from flodl.engine.padding import BucketSizes, padded
from flodl.engine.step import TrainStep


def batch(length, extra=None):
    named = {"x": torch.ones(2, length, 3), "y": torch.ones(2, length), **(extra or {})}
    return Batch(list(named.values()), list(named), epoch=3, index=4, static={"kind": "train"})


def test_tensors_are_filled_up_to_the_next_size_and_masks_tell_what_is_real():
    plan = {
        "x": BucketSizes(sizes=[4, 8], value=-1.0, mask="is_real"),
        "y": BucketSizes(sizes=[4, 8]),
    }
    found = padded(batch(5), plan)
    assert found.names == ("x", "y", "is_real")
    assert found["x"].shape == (2, 8, 3)
    assert torch.equal(found["x"][:, 5:], torch.full((2, 3, 3), -1.0))
    assert torch.equal(found["y"], torch.tensor([[1.0] * 5 + [0.0] * 3] * 2))
    assert found["is_real"].sum(1).tolist() == [5, 5]
    assert (found.epoch, found.index, found.static) == (3, 4, {"kind": "train"})
    exact = padded(batch(4), plan)
    assert exact["x"].shape == (2, 4, 3)
    assert exact["is_real"].all()


def test_another_dimension_can_be_padded():
    found = padded(batch(2), {"x": BucketSizes(sizes=[5], dim=2)})
    assert found["x"].shape == (2, 2, 5)


def test_what_does_not_fit_says_so():
    with pytest.raises(SampleError, match="length 9: longer than the largest bucket, 8"):
        padded(batch(9), {"x": BucketSizes(sizes=[8])})
    with pytest.raises(SampleError, match="no dimension 2"):
        padded(batch(4), {"y": BucketSizes(sizes=[8], dim=2)})
    with pytest.raises(BatchKeyError, match="names: x, y"):
        padded(batch(4), {"z": BucketSizes(sizes=[8])})
    with pytest.raises(SampleError, match="the name of a mask"):
        padded(batch(4), {"x": BucketSizes(sizes=[8], mask="y")})
    with pytest.raises(ConfigError, match="rising order"):
        BucketSizes(sizes=[8, 4])
    with pytest.raises(ConfigError, match="at least 1"):
        BucketSizes(sizes=[0, 4])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucket_sizes": {"x": [4, 8]}}, "BucketSizes by tensor name"),
        (
            {"bucket_sizes": {n: BucketSizes(sizes=[4], mask="m") for n in "xy"}},
            "need different names",
        ),
        ({"passthrough": "name"}, "must be a list of names"),
        ({"reduce": 3}, "must be called with the gradients"),
        ({"steps_per_replay": 0}, "steps_per_replay=0"),
        ({"steps_per_replay": 2, "accumulate": 2}, "no place for what happens between"),
        ({"on_nonfinite": "stop"}, "on_nonfinite='stop'"),
    ],
)
def test_settings_out_of_range_are_refused(options, words):
    model = nn.Linear(3, 1)
    with pytest.raises(ConfigError, match=words):
        TrainStep(lambda m, b: m(b[0]).sum(), model, torch.optim.SGD(model.parameters()), **options)


def test_few_shapes_are_captured_for_many_lengths(ran, same, place):
    def recipe():
        model = nn.Linear(3, 1).to(place.device)
        return model, place.optimizer(model.parameters(), 0.05), masked

    def masked(model, batch):
        error = model(batch["x"]).squeeze(2) - batch["y"]
        return (error.square() * batch["is_real"]).sum() / batch["is_real"].sum()

    def lengths(index):
        generator = torch.Generator().manual_seed(index)
        length = 1 + index % 8
        tensors = [torch.randn(4, length, 3, generator=generator), torch.ones(4, length)]
        return Batch(tensors, ["x", "y"]).to(place.device)

    sizes = {
        "x": BucketSizes(sizes=[4, 8], mask="is_real"),
        "y": BucketSizes(sizes=[4, 8]),
    }
    eager = ran(recipe, lengths, 40, capture="off", bucket_sizes=sizes)
    captured = ran(recipe, lengths, 40, capture="require", bucket_sizes=sizes)
    same(eager, captured)
    assert len(captured.step.stats().signatures) == 2
    assert captured.step.stats().captured == 34
