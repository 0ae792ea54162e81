"""Where tests run, and the seven optimizers with settings that exercise them."""

import pytest
import torch

from flodl import optim
from flodl_sys import names

SEVEN = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "RAdam", "NAdam")
EIGHT = (*SEVEN, "CapturableAdagrad")


@pytest.fixture
def device():
    return torch.device(names.TEST_DEVICE.get() or "cpu")


@pytest.fixture
def weights(device):
    """Two parameters, and a function that gives them the gradients of step ``t``."""
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, generator=generator) for shape in [(3, 2), (4,)]]
    noise = [[torch.randn(p.shape, generator=generator) for p in tensors] for _ in range(12)]
    parameters = [torch.nn.Parameter(p.to(device)) for p in tensors]

    def backward(step, parameters=parameters):
        for parameter, gradient in zip(parameters, noise[step], strict=True):
            parameter.grad = gradient.to(parameter)

    return parameters, backward


@pytest.fixture(params=SEVEN)
def kind(request):
    return getattr(optim, request.param)


@pytest.fixture(params=EIGHT)
def any_kind(request):
    return getattr(optim, request.param)
