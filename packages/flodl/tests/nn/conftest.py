"""Where tests run: the CPU, or what FLODL_TEST_DEVICE names."""

import pytest
import torch

from flodl_sys import names


@pytest.fixture
def device():
    return torch.device(names.TEST_DEVICE.get() or "cpu")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def full_float32(device):
    """On a GPU, convolutions would otherwise round their inputs to TensorFloat-32."""
    parts = [torch.backends.cudnn.conv, torch.backends.cudnn.rnn] if device.type == "cuda" else []
    before = [part.fp32_precision for part in parts]  # monkeypatch would delete what it cannot see
    for part in parts:
        part.fp32_precision = "ieee"
    yield
    for part, precision in zip(parts, before, strict=True):
        part.fp32_precision = precision
