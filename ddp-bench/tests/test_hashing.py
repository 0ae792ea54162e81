import hashlib

import pytest
import torch
from torch import nn

from ddp_bench.hashing import state_hash


def test_hash_depends_on_every_bit_of_parameters_and_buffers():
    torch.manual_seed(0)
    model = nn.BatchNorm1d(3)
    before = state_hash(model)
    assert state_hash(model) == before
    model.running_mean[1] = torch.nextafter(torch.tensor(0.0), torch.tensor(1.0))
    assert state_hash(model) != before


def test_hash_does_not_depend_on_names():
    linear = nn.Linear(2, 3)
    assert state_hash(nn.Sequential(linear)) == state_hash(linear)


def test_hash_tells_shapes_of_the_same_bytes_apart():
    wide, tall = nn.Linear(4, 1, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        tall.weight.copy_(wide.weight.reshape(2, 2))
    assert state_hash(wide) != state_hash(tall)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_tensors_of_any_type_are_hashed_byte_by_byte(dtype):
    model = nn.Module()
    model.register_buffer("values", torch.tensor([[1, 0]]).to(dtype).t())
    raw = model.values.flatten().contiguous().view(torch.uint8).numpy().tobytes()
    assert state_hash(model) == hashlib.sha256(f"{dtype}(2, 1)".encode() + raw).hexdigest()
