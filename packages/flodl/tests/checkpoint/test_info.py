import gzip

import pytest
import torch
from safetensors.torch import save_file

from flodl.checkpoint import checkpoint_info, checkpoint_keys, checkpoint_version, save_checkpoint
from flodl.core.errors import CheckpointError, CheckpointFormatError


def names_in(folder):
    return [path.name for path in folder.iterdir()]


def test_names_include_those_of_tied_tensors(tmp_path):
    path = tmp_path / "a.fdl"
    shared = torch.zeros(2)
    save_checkpoint(path, {"b": shared, "a": shared, "c": torch.zeros(1)})
    assert checkpoint_keys(path) == ["a", "b", "c"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_head_is_read_without_the_data(tmp_path, suffix):
    path = tmp_path / f"a.fdl{suffix}"
    save_checkpoint(path, {"x": torch.arange(3_000_000.0)}, label="m")
    if suffix:
        path.write_bytes(path.read_bytes()[:500_000])  # the head is whole, the data is not
    info = checkpoint_info(path)
    assert info.label == "m"
    assert info.tensors == {"x": (torch.float32, (3_000_000,))}


def test_version_is_three_and_zero_for_plain_safetensors(tmp_path):
    save_checkpoint(tmp_path / "a.fdl", {"x": torch.zeros(1)})
    save_file({"x": torch.zeros(1)}, tmp_path / "b.safetensors")
    assert checkpoint_version(tmp_path / "a.fdl") == 3
    assert checkpoint_version(tmp_path / "b.safetensors") == 0
    assert checkpoint_info(tmp_path / "b.safetensors").hash == ""


def test_truncated_files_are_named(tmp_path):
    path = tmp_path / "a.fdl"
    save_checkpoint(path, {"x": torch.zeros(100)})
    data = path.read_bytes()
    for length in (0, 5, 20, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointFormatError, match=rf"a\.fdl.*{length} bytes long"):
            checkpoint_keys(path)
    path.write_bytes(gzip.compress(data[:20]))
    with pytest.raises(CheckpointFormatError, match="20 bytes long"):
        checkpoint_keys(path)


def test_missing_file_is_a_checkpoint_error(tmp_path):
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        checkpoint_keys(tmp_path / "no.fdl")
    assert names_in(tmp_path) == []
