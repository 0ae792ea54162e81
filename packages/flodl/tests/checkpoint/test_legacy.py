import gzip
import struct

import pytest
import torch
from torch import nn

from flodl.checkpoint import checkpoint_info, checkpoint_keys, checkpoint_version, load_checkpoint
from flodl.core.errors import CheckpointFormatError, CheckpointVersionError

WEIGHT = torch.arange(6, dtype=torch.float32).reshape(2, 3)
TAGS = {
    torch.float16: 1,
    torch.bfloat16: 2,
    torch.float32: 3,
    torch.float64: 4,
    torch.int32: 5,
    torch.int64: 6,
}


def entry(name, tensor):
    raw = bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
    text = name.encode()
    return (
        struct.pack("<I", len(text))
        + text
        + struct.pack("<I", tensor.dim())
        + struct.pack(f"<{tensor.dim()}q", *tensor.shape)
        + struct.pack("<BQ", TAGS[tensor.dtype], len(raw))
        + raw
    )


def legacy(tensors, version=2):
    body = b"".join(entry(name, tensor) for name, tensor in tensors.items())
    return b"FDLC" + struct.pack("<I", version) + bytes(32) + struct.pack("<I", len(tensors)) + body


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_files_of_both_versions_load(tmp_path, version, pack):
    path, bias = tmp_path / "old.fdl", torch.tensor([1.0, 2.0])
    path.write_bytes(pack(legacy({"layer/weight": WEIGHT, "layer/bias": bias}, version)))
    model = nn.ModuleDict({"layer": nn.Linear(3, 2)})
    model.structural_hash = "f" * 64
    report = load_checkpoint(path, model)
    assert report.is_complete
    assert not report.hash_checked
    assert torch.equal(model["layer"].weight, WEIGHT)
    assert torch.equal(model["layer"].bias, bias)
    assert checkpoint_version(path) == version
    assert checkpoint_keys(path) == ["layer.bias", "layer.weight"]
    assert checkpoint_info(path).hash == ""


@pytest.mark.parametrize("dtype", list(TAGS), ids=str)
@pytest.mark.parametrize("shape", [(), (0, 2), (3, 1, 2)], ids=str)
def test_every_dtype_and_shape(tmp_path, dtype, shape):
    value, target = torch.ones(shape).to(dtype), torch.zeros(shape).to(dtype)
    (tmp_path / "old.fdl").write_bytes(legacy({"a/b": value}))
    load_checkpoint(tmp_path / "old.fdl", {"a.b": target}, strict=True)
    assert torch.equal(target, value)


def damaged():
    whole = legacy({"a/b": WEIGHT})
    yield "truncated", whole[:-1]
    yield "longer", whole + b"x"
    yield "twice", legacy({"a/b": WEIGHT, "a.b": WEIGHT})
    yield "count", whole[:40] + struct.pack("<I", 2**32 - 1) + whole[44:]
    yield "name length", whole[:44] + struct.pack("<I", 2**31) + whole[48:]
    yield "name", whole[:48] + b"\xff" + whole[49:]
    yield "dimensions", whole[:51] + struct.pack("<I", 2**20) + whole[55:]
    yield "shape", whole[:55] + struct.pack("<q", 2**40) + whole[63:]
    yield "negative", whole[:55] + struct.pack("<q", -2) + whole[63:]
    yield "dtype", whole[:71] + b"\x07" + whole[72:]
    yield "bytes", whole[:72] + struct.pack("<Q", 2**60) + whole[80:]
    yield "head", whole[:20]


@pytest.mark.parametrize("content", [pytest.param(c, id=name) for name, c in damaged()])
def test_damaged_files_change_nothing(tmp_path, content):
    (tmp_path / "old.fdl").write_bytes(content)
    target = {"a.b": torch.zeros(2, 3)}
    with pytest.raises(CheckpointFormatError, match="damaged checkpoint of the Rust original"):
        load_checkpoint(tmp_path / "old.fdl", target)
    assert not target["a.b"].any()


def test_unknown_version_is_named(tmp_path):
    (tmp_path / "old.fdl").write_bytes(legacy({}, version=3))
    with pytest.raises(CheckpointVersionError, match="version 3 of the Rust original's format"):
        load_checkpoint(tmp_path / "old.fdl", {})
