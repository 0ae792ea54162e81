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
def full_float32(device, monkeypatch):
    """On a GPU, convolutions would otherwise round their inputs to TensorFloat-32."""
    if device.type == "cuda":
        for part in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
            monkeypatch.setattr(part, "fp32_precision", "ieee")
