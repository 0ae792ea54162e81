import io
import pickle
import random

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from flodl.checkpoint import load_checkpoint, save_checkpoint
from flodl.core.errors import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointKeyError,
    CheckpointMismatchError,
    CheckpointShapeError,
)


def model(seed=0, width=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width))


def values(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(module, before):
    return all(torch.equal(before[name], value) for name, value in module.state_dict().items())


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.fdl"
    save_checkpoint(path, model(1), "aa" * 32)
    return path


def test_values_are_copied_in_place(saved):
    target = model(2)
    parameter = target[0].weight
    pointer = parameter.data_ptr()
    report = load_checkpoint(saved, target)
    assert report.is_complete
    assert len(report.loaded) == 7
    assert same(target, values(model(1)))
    assert target[0].weight is parameter
    assert parameter.data_ptr() == pointer


def test_report_says_what_happened(tmp_path, saved):
    tensors = {"0.weight": torch.zeros(4, 3, dtype=torch.float64), "mine": torch.zeros(1)}
    report = load_checkpoint(saved, tensors)
    assert report.loaded == ("0.weight",)
    assert report.cast == ("0.weight",)
    assert report.missing == ("mine",)
    assert "0.bias" in report.skipped
    assert not report.is_complete
    assert not report.hash_checked
    assert str(report).startswith(f"{saved}: 1 loaded, 1 cast (0.weight), 6 skipped (0.bias,")


def test_hash_is_compared_only_when_both_are_known(saved):
    assert load_checkpoint(saved, model(), "aa" * 32).hash_checked
    assert not load_checkpoint(saved, model()).hash_checked
    assert not load_checkpoint(saved, model(), "bb" * 32, check_hash=False).hash_checked
    with pytest.raises(CheckpointMismatchError, match=f"{'aa' * 32}, the model's is {'bb' * 32}"):
        load_checkpoint(saved, model(), "bb" * 32)


def test_all_misfits_are_listed_and_nothing_is_written(saved):
    target = model(3, width=5)
    before = values(target)
    with pytest.raises(CheckpointShapeError, match=r"6 tensors do not fit") as caught:
        load_checkpoint(saved, target)
    assert "0.weight: [4, 3] in the file, [5, 3] here" in str(caught.value)
    assert "1.running_var" in str(caught.value)
    assert same(target, before)


def test_dtype_is_a_misfit_without_cast_and_when_it_would_lose_a_kind(tmp_path):
    path = tmp_path / "a.fdl"
    save_checkpoint(path, {"x": torch.ones(2), "z": torch.ones(2, dtype=torch.complex64)})
    with pytest.raises(CheckpointShapeError, match="x: torch.float32 in the file, torch.float64"):
        load_checkpoint(path, {"x": torch.zeros(2, dtype=torch.float64)}, cast=False)
    with pytest.raises(CheckpointShapeError, match="complex64 in the file, torch.float32 here"):
        load_checkpoint(path, {"z": torch.zeros(2)})
    with pytest.raises(CheckpointShapeError, match="float32 in the file, torch.int64 here"):
        load_checkpoint(path, {"x": torch.zeros(2, dtype=torch.int64)})


def test_strict_names_what_is_missing_and_left_over(saved):
    target = {"0.weight": torch.zeros(4, 3), "mine": torch.zeros(1)}
    with pytest.raises(CheckpointKeyError, match=r"missing from the file: mine.*only in.*0\.bias"):
        load_checkpoint(saved, target, strict=True)
    assert target["0.weight"].eq(0).all()


@pytest.mark.parametrize(
    "rename", [{"0.weight": "w"}, lambda name: "w" if name == "0.weight" else name]
)
def test_names_can_be_mapped(saved, rename):
    target = {"w": torch.zeros(4, 3)}
    assert load_checkpoint(saved, target, rename=rename).loaded == ("w",)
    assert torch.equal(target["w"], model(1)[0].weight)


def test_two_tensors_mapped_to_one_name_are_an_error(saved):
    with pytest.raises(CheckpointKeyError, match="'x' to two tensors"):
        load_checkpoint(saved, model(), rename=lambda name: "x")


def test_tied_target_counts_as_loaded_when_the_file_has_one_name(tmp_path):
    path = tmp_path / "a.safetensors"
    weight = torch.randn(4, 4)
    save_file({"0.weight": weight}, path)
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    report = load_checkpoint(path, tied, strict=True)
    assert report.is_complete
    assert torch.equal(tied[1].weight, weight)


def test_plain_safetensors_file_loads_without_a_hash(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file(model(1).state_dict(), path)
    target = model(2)
    assert load_checkpoint(path, target, "bb" * 32).is_complete
    assert same(target, values(model(1)))


def test_stream_loads_like_a_file(saved):
    target = model(2)
    assert load_checkpoint(io.BytesIO(saved.read_bytes()), target).is_complete
    assert same(target, values(model(1)))


def test_changed_byte_is_found_by_the_digest(saved):
    data = bytearray(saved.read_bytes())
    data[-3] ^= 1
    saved.write_bytes(data)
    target = model(2)
    before = values(target)
    with pytest.raises(CheckpointFormatError, match="does not fit its digest"):
        load_checkpoint(saved, target)
    assert same(target, before)
    assert load_checkpoint(saved, target, verify=False).is_complete


def test_digest_covers_tensors_that_are_not_wanted(saved):
    data = bytearray(saved.read_bytes())
    data[-3] ^= 1
    saved.write_bytes(data)
    with pytest.raises(CheckpointFormatError, match="digest"):
        load_checkpoint(saved, {"0.weight": torch.zeros(4, 3)})


def test_length_is_checked_before_anything_else(saved):
    data = saved.read_bytes()
    for changed, words in ((data[:-1], "truncated"), (data + b"x", "do not belong")):
        saved.write_bytes(changed)
        with pytest.raises(CheckpointFormatError, match=f"{words}.*{len(changed)} bytes long"):
            load_checkpoint(saved, model())


def test_pickles_are_refused(tmp_path):
    path = tmp_path / "a.fdl"
    path.write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(CheckpointFormatError, match="pickle"):
        load_checkpoint(path, model())
    torch.save(model().state_dict(), path)
    with pytest.raises(CheckpointFormatError, match=r"torch\.load"):
        load_checkpoint(path, model())


def test_missing_file_and_folder_are_explained(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot read.*No such file"):
        load_checkpoint(tmp_path / "no.fdl", model())
    with pytest.raises(CheckpointError, match=r"cannot read.*Is a directory"):
        load_checkpoint(tmp_path, model())


def test_target_without_memory_is_refused(saved):
    with pytest.raises(CheckpointError, match="no memory behind them"):
        load_checkpoint(saved, model().to("meta"))


def test_damaged_files_never_load_as_something_else(saved):
    rng = random.Random(0)
    data = saved.read_bytes()
    good = values(model(1))
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        if rng.random() < 0.2:
            del damaged[rng.randrange(len(damaged)) :]
        target = model(2)
        before = values(target)
        try:
            load_checkpoint(io.BytesIO(bytes(damaged)), target)
        except CheckpointError:
            assert same(target, before)
        else:
            # Only padding or a byte changed to itself leaves a sound file.
            assert same(target, good)
