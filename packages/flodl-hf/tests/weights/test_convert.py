import json
import os
import pickle
import random

import pytest
import torch
from safetensors.torch import load_file

from flodl_hf import AutoModelForMaskedLM, NoSafetensorsError, WeightsError
from flodl_hf.weights.convert import convert_pickle, read_pickle


@pytest.fixture
def legacy(saved):
    """Return a directory whose only weights are a pickle, with the copies old files have."""
    folder, model = saved("bert", "mlm")
    state = dict(model.state_dict())
    assert "cls.predictions.decoder.weight" in state
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder, model


def test_loading_never_opens_a_pickle_but_says_how_to_convert_it(legacy):
    folder, _ = legacy
    with pytest.raises(NoSafetensorsError, match=f"fdl flodl-hf convert {folder}"):
        AutoModelForMaskedLM.from_pretrained(folder)


def test_a_converted_model_loads_and_has_each_tensor_once(legacy):
    folder, model = legacy
    path = convert_pickle(folder / "pytorch_model.bin", folder)
    assert "cls.predictions.decoder.weight" not in load_file(path)
    head = AutoModelForMaskedLM.from_pretrained(folder)
    ids = torch.arange(4, 9)[None]
    with torch.no_grad():
        assert torch.equal(head(ids), model(ids).logits)
    record = json.loads((folder / "provenance.json").read_text())
    assert len(record["sha256"]["pytorch_model.bin"]) == 64
    assert record["versions"]["torch"]


def test_converting_again_does_nothing_unless_forced(legacy):
    folder, _ = legacy
    path = convert_pickle(folder / "pytorch_model.bin", folder)
    path.write_bytes(b"mine")
    convert_pickle(folder / "pytorch_model.bin", folder)
    assert path.read_bytes() == b"mine"
    convert_pickle(folder / "pytorch_model.bin", folder, force=True)
    assert len(load_file(path)) > 10


def test_several_parts_are_joined(legacy, tmp_path):
    folder, model = legacy
    state = torch.load(folder / "pytorch_model.bin", weights_only=True)
    names = sorted(state)
    parts = {"a.bin": names[::2], "b.bin": names[1::2]}
    for file, part in parts.items():
        torch.save({name: state[name] for name in part}, tmp_path / file)
    index = {name: file for file, part in parts.items() for name in part}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    path = convert_pickle(
        tmp_path / "pytorch_model.bin.index.json",
        tmp_path / "out",
        config=folder / "config.json",
    )
    assert path.parent == tmp_path / "out"
    head = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert torch.equal(
        head.bert.get_submodule("embeddings.word_embeddings").weight,
        model.bert.embeddings.word_embeddings.weight,
    )


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_that_would_run_code_is_refused_and_does_not(tmp_path):
    trace = tmp_path / "trace"
    for write in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        write({"w": Payload(str(trace))}, tmp_path / "pytorch_model.bin")
        with pytest.raises(WeightsError, match="refused") as caught:
            convert_pickle(tmp_path / "pytorch_model.bin", tmp_path / "out")
        # torch advises to read the file unsafely.
        assert "weights_only" not in caught.value.message
        assert not trace.exists()
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([torch.zeros(2)], "holds a list"),
        ({"w": torch.zeros(2), "epoch": 3}, "'epoch' is a int"),
        ({"w": torch.eye(2).to_sparse()}, "'w' is a tensor that safetensors cannot hold"),
        ({"w": torch.zeros(2, device="meta")}, r"'w' .* cannot hold \(meta\)"),
    ],
)
def test_what_is_no_table_of_tensors_is_refused(tmp_path, content, said):
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=said):
        convert_pickle(tmp_path / "pytorch_model.bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_is_named(tmp_path):
    torch.save({"w": torch.zeros(100)}, tmp_path / "x.bin")
    (tmp_path / "x.bin").write_bytes((tmp_path / "x.bin").read_bytes()[:200])
    with pytest.raises(WeightsError, match=r"x\.bin"):
        convert_pickle(tmp_path / "x.bin", tmp_path / "out")


@pytest.mark.parametrize("is_zip", [True, False])
def test_damage_of_any_kind_is_refused_or_without_effect(tmp_path, is_zip):
    path = tmp_path / "x.bin"
    torch.save({"w": torch.arange(5.0)}, path, _use_new_zipfile_serialization=is_zip)
    whole, draw = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(4):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged[: draw.randrange(1, 2 * len(damaged))])
        try:
            read_pickle(path)
        except WeightsError:
            refused += 1
    assert refused > 100


def test_tensors_that_share_memory_are_written_apart(tmp_path):
    base = torch.arange(10.0)
    torch.save({"a": base[:5], "b": base[3:]}, tmp_path / "x.bin")
    stored = load_file(convert_pickle(tmp_path / "x.bin", tmp_path / "out"))
    assert torch.equal(stored["a"], base[:5])
    assert torch.equal(stored["b"], base[3:])
