import pytest
import torch
from torch import nn

from flodl.core.errors import StepContractError
from flodl.data import Batch
from flodl.engine.gradients import FlatGradients
from flodl.engine.step import TrainStep
from flodl.nn import freeze


def mse(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Batch([torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)])


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def flat_of(model, dtype=torch.float32):
    names = {id(p): name for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return FlatGradients(list(model.parameters()), names)


def test_gradients_become_views_of_one_aligned_buffer_for_each_dtype():
    model = build()
    model[2].double()
    flat = flat_of(model)
    assert [bucket.dtype for bucket in flat.buckets] == [torch.float32, torch.float64]
    assert flat.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    for bucket, layer in zip(flat.buckets, (model[0], model[2]), strict=True):
        bucket.fill_(3.0)
        assert all(torch.equal(p.grad, torch.full_like(p, 3.0)) for p in layer.parameters())
        assert all(p.grad.data_ptr() % 64 == bucket.data_ptr() % 64 for p in layer.parameters())


def test_a_gradient_lies_in_memory_as_its_parameter_does():
    model = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    flat_of(model)
    assert model.weight.grad.stride() == model.weight.stride()
    assert not model.weight.grad.is_contiguous()


def test_the_layout_tells_ranks_with_other_parameters_apart():
    assert flat_of(build()).layout == flat_of(build()).layout
    other = build()
    freeze(other[0])
    for parameter in other[2].parameters():
        parameter.grad = torch.ones_like(parameter)
    assert FlatGradients(list(other.parameters()), {}).layout != flat_of(build()).layout


def test_a_sparse_gradient_is_refused_with_its_remedy():
    model = nn.Embedding(4, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(StepContractError, match="sparse gradient"):
        FlatGradients(list(model.parameters()), {id(model.weight): "weight"})


def test_repair_brings_gradients_back_and_leaves_frozen_parameters_alone():
    model = build()
    flat = flat_of(model)
    views = [p.grad for p in model.parameters()]
    model[0].weight.grad = None
    model[0].bias.grad = torch.full((5,), 7.0)
    freeze(model[2])
    flat.repair()
    assert model[0].weight.grad is views[0]
    assert not model[0].weight.grad.any()
    assert model[0].bias.grad is views[1]
    assert torch.equal(views[1], torch.full((5,), 7.0))
    assert model[2].weight.grad is None


def plain_loop(reduce_factor, changes, steps=12):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for index in range(steps):
        changes(model, index)
        optimizer.zero_grad()
        mse(model, batch(index)).backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(reduce_factor)
        optimizer.step()
    return model


def test_freezing_and_thawing_under_a_reducer_equal_a_hand_written_loop():
    def changes(model, index):
        if index == 4:
            freeze(model[0])
        if index == 8:
            model[0].requires_grad_(True)

    layouts = []

    def reduce(gradients):
        layouts.append(gradients.layout)
        for bucket in gradients.buckets:
            bucket.mul_(0.5)

    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    step = TrainStep(mse, model, optimizer, reduce=reduce)
    for index in range(12):
        changes(model, index)
        step(batch(index))
    for ours, theirs in zip(model.parameters(), plain_loop(0.5, changes).parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert [len(set(layouts[a:b])) for a, b in ((0, 4), (4, 8), (8, 12))] == [1, 1, 1]
    assert len(set(layouts)) == 2


def test_a_short_window_is_exchanged_too():
    seen = []
    model = build()
    step = TrainStep(
        mse, model, torch.optim.SGD(model.parameters(), lr=0.1), accumulate=4,
        reduce=lambda gradients: seen.append(gradients.buckets[0].abs().sum().item()),
    )  # fmt: skip
    for index in range(6):
        step(batch(index))
    step.finish_window()
    assert len(seen) == 2
    assert all(total > 0 for total in seen)
    assert step.global_step == 2
