import pytest
import torch

from flodl.core.errors import ConfigError
from flodl.device import default_device, parse_device


def test_without_a_gpu_the_default_is_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == torch.device("cpu")


def test_with_a_gpu_the_default_is_the_first(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device() == torch.device("cuda", 0)


@pytest.mark.parametrize(("count", "spec"), [(0, "cuda"), (2, "cuda:2")])
def test_a_gpu_that_is_not_here_is_refused_with_the_count(monkeypatch, count, spec):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(ConfigError, match=f"'{spec}'.*{count} CUDA devices"):
        parse_device(spec)


def test_cuda_without_an_index_is_the_first(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert parse_device("cuda") == torch.device("cuda", 0)


def test_text_that_is_no_device_is_refused():
    with pytest.raises(ConfigError, match="'gpu please': not a device name"):
        parse_device("gpu please")
