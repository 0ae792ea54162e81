import pytest
import torch
from torch import nn as torch_nn

from flodl.core.errors import UntrainedStatsError
from flodl.nn import BatchNorm, InstanceNorm, check_norm_stats

SHAPES = [(4, 3), (4, 3, 5), (4, 3, 5, 2), (2, 3, 2, 2, 2), (2, 3, 2, 2, 2, 2)]
TORCH = {2: "1d", 3: "1d", 4: "2d", 5: "3d"}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm_is_torchs_for_any_number_of_dimensions(shape, device):
    ours = BatchNorm(3, momentum=0.3).to(device)
    x = torch.randn(shape, device=device) * 2 + 1
    if len(shape) in TORCH:
        theirs = getattr(torch_nn, f"BatchNorm{TORCH[len(shape)]}")(3, momentum=0.3).to(device)
        reference = x
    else:
        theirs, reference = torch_nn.BatchNorm3d(3, momentum=0.3).to(device), x.flatten(4)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    for _ in range(2):
        torch.testing.assert_close(ours(x), theirs(reference).view_as(x))
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(reference).view_as(x))
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)


@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
def test_instance_norm_normalizes_each_channel_of_each_sample(shape, device):
    x = torch.randn(shape, device=device) * 2 + 1
    module = InstanceNorm(3).to(device)
    result = module(x).flatten(2)
    torch.testing.assert_close(
        result.mean(2), torch.zeros(shape[0], 3, device=device), atol=1e-5, rtol=0
    )
    variance = x.flatten(2).var(2, unbiased=False)
    torch.testing.assert_close(result.var(2, unbiased=False), variance / (variance + 1e-5))
    assert list(module.state_dict()) == ["weight", "bias"]
    assert list(InstanceNorm(3, affine=False).state_dict()) == []
    tracked = InstanceNorm(3, track_running_stats=True).state_dict()
    assert list(tracked) == list(
        torch_nn.InstanceNorm1d(3, affine=True, track_running_stats=True).state_dict()
    )


@pytest.mark.parametrize("kind", [BatchNorm, InstanceNorm])
@pytest.mark.parametrize("shape", SHAPES[1:4], ids=str)
def test_gradients_are_those_of_finite_differences(kind, shape):
    module = kind(3).double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in module.named_parameters()]

    def run(x, *values):
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x,))

    module.num_batches_tracked = None
    values = [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in names]
    assert torch.autograd.gradcheck(run, [x, *values], eps=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (BatchNorm(3), (3,), r"\[3\]; it must be \[N, C, …\]"),
        (BatchNorm(3), (2, 4), "has 4 channels; the module was made for 3"),
        (InstanceNorm(3), (2, 3), r"must be \[N, C, d, …\]"),
        (InstanceNorm(3, affine=False), (2, 4, 5), "has 4 channels"),
    ],
    ids=str,
)
def test_wrong_shapes_are_refused(module, shape, message):
    with pytest.raises(ValueError, match=message):
        module(torch.zeros(shape))


def test_a_single_value_per_channel_is_an_error_while_training():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        BatchNorm(3)(torch.zeros(1, 3))


def test_evaluating_without_any_statistics_is_an_error_that_names_them():
    model = torch_nn.Sequential(
        BatchNorm(3), torch_nn.Linear(3, 3), torch_nn.BatchNorm1d(3), InstanceNorm(3)
    )
    with pytest.raises(UntrainedStatsError, match="has set: 0, 2"):
        check_norm_stats(model)
    with pytest.raises(UntrainedStatsError, match="BatchNorm"):
        check_norm_stats(BatchNorm(3))
    model[:3](torch.randn(4, 3))
    check_norm_stats(model)
    check_norm_stats(torch_nn.BatchNorm1d(3, track_running_stats=False))


def test_plain_eval_raises_nothing():
    BatchNorm(3).eval()(torch.zeros(2, 3))
