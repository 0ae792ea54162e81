"""Headers of every length: the first bytes of a file are that length, and may look like others."""

import gzip
import json

import pytest
import torch

from flodl import optim
from flodl.checkpoint import (
    checkpoint_info,
    load_checkpoint,
    load_state_file,
    migrate_optim_state_file,
    save_checkpoint,
    save_state_file,
)
from flodl.checkpoint.files import GZIP_MAGIC

LOOKS_LIKE_A_PICKLE = (0x0280, 0x0480, 0x0580)


def written_length(path):
    return int.from_bytes(path.read_bytes()[:8], "little")


def test_a_checkpoint_with_a_header_of_any_length_is_read(tmp_path):
    path, lengths = tmp_path / "a.fdl", set()
    for extra in range(0, 1200, 8):
        name = "w" * (extra + 1)
        save_checkpoint(path, {name: torch.arange(3.0)})
        lengths.add(written_length(path))
        assert list(checkpoint_info(path).tensors) == [name]
        read = {name: torch.zeros(3)}
        load_checkpoint(path, read)
        assert read[name].tolist() == [0, 1, 2]
    assert lengths >= set(LOOKS_LIKE_A_PICKLE)


def test_a_state_file_with_a_header_of_any_length_is_read(tmp_path):
    path, lengths = tmp_path / "a.optim", set()
    for extra in range(0, 600, 8):
        named = [("w" * (extra + 1), torch.nn.Parameter(torch.ones(2)))]
        save_state_file(optim.SGD(named, lr=0.25), path)
        lengths.add(written_length(path))
        fresh = optim.SGD(named, lr=1.0)
        load_state_file(fresh, path)
        assert fresh.lr == 0.25
    assert {length % 256 for length in lengths} >= {0x80}


def test_a_state_file_that_looks_like_a_pickle_is_no_file_of_torch(tmp_path):
    path = tmp_path / "a.optim"
    for extra in range(0, 600, 8):
        named = [("w" * (extra + 1), torch.nn.Parameter(torch.ones(2)))]
        save_state_file(optim.SGD(named, lr=0.25), path)
        if written_length(path) % 256 == 0x80:
            break
    else:
        pytest.fail("no header has such a length")
    migrate_optim_state_file(path, tmp_path / "b.optim")
    fresh = optim.SGD(named, lr=1.0)
    load_state_file(fresh, tmp_path / "b.optim")
    assert fresh.lr == 0.25


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_length_may_begin_as_packed_files_do(tmp_path, suffix):
    length = int.from_bytes(GZIP_MAGIC, "little")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    content = length.to_bytes(8, "little") + header.ljust(length) + torch.ones(2).numpy().tobytes()
    path = tmp_path / f"a.safetensors{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert list(checkpoint_info(path).tensors) == ["w"]
    read = {"w": torch.zeros(2)}
    load_checkpoint(path, read)
    assert read["w"].tolist() == [1, 1]
