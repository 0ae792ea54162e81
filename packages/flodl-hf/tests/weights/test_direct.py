import os
from io import FileIO

import pytest
import torch
from safetensors.torch import save_file

from flodl_hf import WeightsError
from flodl_hf.weights.direct import DirectFile

TENSORS = {
    "matrix": torch.arange(12.0).view(3, 4),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "wide": torch.tensor([1e300], dtype=torch.float64),
    "one": torch.tensor(7.0),
    "none": torch.empty(0, 5),
}


@pytest.fixture
def file(tmp_path):
    save_file(TENSORS, tmp_path / "m.safetensors", metadata={"format": "pt"})
    return tmp_path / "m.safetensors"


def test_every_tensor_is_read_from_its_place(file):
    with FileIO(file) as opened:
        direct = DirectFile(opened, "m")
        for name, expected in reversed(TENSORS.items()):
            found = direct.read(name, tuple(expected.shape), expected.dtype)
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)


def test_what_was_read_needs_no_file(file):
    with FileIO(file) as opened:
        found = DirectFile(opened, "m").read("matrix", (3, 4), torch.float32)
    file.write_bytes(b"\0" * file.stat().st_size)
    assert torch.equal(found, TENSORS["matrix"])


def test_a_file_that_got_shorter_is_named(file):
    with FileIO(file) as opened:
        direct = DirectFile(opened, "m.safetensors")
        os.truncate(file, file.stat().st_size - 60)
        with pytest.raises(WeightsError, match=r"m\.safetensors: ends inside"):
            for name, expected in TENSORS.items():
                direct.read(name, tuple(expected.shape), expected.dtype)
