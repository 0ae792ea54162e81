import pytest
import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.distributed.averaging.layout import Layout


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.norm = nn.BatchNorm1d(3)
        self.slim = nn.Parameter(torch.ones(2, dtype=torch.float16))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("table", torch.ones(4), persistent=False)


def test_shared_parameters_go_once_and_frozen_ones_not_at_all():
    layout = Layout(Tied())
    assert [slot.name for slot in layout.slots] == [
        "slim",
        "first.weight",
        "first.bias",
        "second.bias",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
    ]
    assert layout.counter_names == ("norm.num_batches_tracked",)
    assert layout.parameter_end == layout.weighted_end == 2 + 9 + 3 + 3 + 3 + 3
    assert layout.numel == layout.weighted_end + 6


def test_values_survive_the_way_there_and_back_in_place():
    model = Tied()
    model.first.weight.data = torch.randn(3, 3).t()  # not contiguous
    layout = Layout(model)
    places = [tensor.data_ptr() for tensor in layout.tensors]
    flat = torch.empty(layout.numel)
    layout.flatten(flat)
    wanted = {name: value.clone() for name, value in model.state_dict().items()}
    for name, value in layout.named(flat).items():
        torch.testing.assert_close(value, wanted[name].float())
    layout.restore(torch.zeros(layout.numel))
    assert not any(tensor.any() for tensor in layout.tensors)
    layout.restore(flat)
    assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
    assert places == [tensor.data_ptr() for tensor in layout.tensors]


def test_extra_tensors_stand_between_parameters_and_buffers():
    model = nn.BatchNorm1d(2)
    layout = Layout(model, {"weight/momentum": torch.full((2,), 5.0)})
    flat = torch.empty(layout.numel)
    layout.flatten(flat)
    assert flat.tolist() == [1, 1, 0, 0, 5, 5, 0, 0, 1, 1]
    assert (layout.parameter_end, layout.weighted_end) == (4, 6)
    assert set(layout.named(flat)) == {"weight", "bias", "running_mean", "running_var"}


def test_a_model_without_parameters_has_an_empty_layout():
    layout = Layout(nn.ReLU())
    layout.flatten(torch.empty(0))
    assert (layout.numel, layout.description()) == (0, [])


def test_the_signature_tells_names_shapes_and_dtypes_apart():
    signatures = {
        Layout(model).signature()
        for model in (
            nn.Linear(2, 3),
            nn.Linear(2, 4),
            nn.Linear(2, 3, bias=False),
            nn.Linear(2, 3).half(),
            nn.Sequential(nn.Linear(2, 3)),
        )
    }
    assert len(signatures) == 5
    assert Layout(nn.Linear(2, 3)).signature() == Layout(nn.Linear(2, 3)).signature()


def test_complex_parameters_are_refused_by_name():
    model = nn.Module()
    model.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ConfigError, match=r"phase is torch\.complex64"):
        Layout(model)
