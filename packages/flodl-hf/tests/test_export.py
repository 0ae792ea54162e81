import json

import pytest
import torch
from safetensors.torch import load_file

from flodl_hf import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    ConfigError,
    UnsupportedArchitectureError,
    WeightsError,
)
from flodl_hf.export import HEADS, export_checkpoint, export_source, head_of
from flodl_hf.verify.export import verify_export
from flodl_hf.weights.write import save_sharded_from


def test_an_export_is_verified_with_its_tokenizer(talking, tmp_path):
    folder, _ = talking("bert", "seqcls")
    exported = export_source(folder, tmp_path / "out")
    assert exported.head == "seqcls"
    assert exported.files == ("config.json", "model.safetensors", "tokenizer.json")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["flodl_source_repo"] == str(folder)
    assert config["architectures"] == ["BertForSequenceClassification"]
    report = verify_export(tmp_path / "out")
    assert report.passed, report.checks
    assert set(report.checks) == {
        "keys",
        "equal to the reference",
        "tokenizer",
        "equal to the source",
    }
    assert report.difference <= 1e-5


@pytest.mark.parametrize(
    ("name", "break_it"),
    [
        ("keys", lambda tensors: tensors.pop("classifier.bias")),
        ("equal to the source", lambda tensors: tensors["classifier.bias"].add_(1)),
    ],
)
def test_a_broken_export_is_found(talking, tmp_path, name, break_it):
    from safetensors.torch import save_file

    from flodl_hf import KeySetError

    folder, _ = talking("bert", "seqcls")
    export_source(folder, tmp_path / "out")
    tensors = load_file(tmp_path / "out/model.safetensors")
    break_it(tensors)
    save_file(tensors, tmp_path / "out/model.safetensors", metadata={"format": "pt"})
    if name == "keys":
        with pytest.raises(KeySetError, match=r"classifier\.bias"):
            verify_export(tmp_path / "out")
        return
    report = verify_export(tmp_path / "out")
    assert report.checks[name]
    assert not report.passed


@pytest.mark.parametrize(
    ("family", "head"), [("roberta", "mlm"), ("deberta-v2", "seqcls"), ("albert", "tokcls")]
)
def test_a_checkpoint_and_its_source_export_to_the_same_bytes(saved, tmp_path, family, head):
    folder, _ = saved(family, head)
    export_source(folder, tmp_path / "hub")
    model = HEADS[head].classes[family].from_pretrained(folder)
    model.graph.save_checkpoint(tmp_path / "m.fdl")
    export_checkpoint(tmp_path / "m.fdl", tmp_path / "own")
    both = [(tmp_path / kind / "model.safetensors").read_bytes() for kind in ("hub", "own")]
    assert both[0] == both[1]
    assert verify_export(tmp_path / "own", source=folder).passed


def test_the_tokenizer_beside_a_checkpoint_is_taken_along(talking, tmp_path):
    folder, _ = talking("bert", "seqcls")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    model.graph.save_checkpoint(tmp_path / "m.fdl")
    model.tokenizer.save(tmp_path / "tokenizer.json")
    exported = export_checkpoint(tmp_path / "m.fdl", tmp_path / "own")
    assert "tokenizer.json" in exported.files
    report = verify_export(tmp_path / "own", source=folder)
    assert report.passed
    assert "tokenizer" in report.checks
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "own")
    assert again.predict(["the fox"]) == model.predict(["the fox"])


@pytest.mark.parametrize("with_pooler", [True, False])
def test_a_backbone_is_exported_with_the_pooler_it_has(saved, tmp_path, with_pooler):
    folder, _ = saved("bert", "base")
    graph = AutoModel.from_pretrained(folder, with_pooler=with_pooler)
    graph.save_checkpoint(tmp_path / "m.fdl")
    exported = export_checkpoint(tmp_path / "m.fdl", tmp_path / "out")
    names = load_file(tmp_path / "out/model.safetensors")
    assert ("pooler.dense.weight" in names) is with_pooler
    assert exported.notes == ("no tokenizer files beside m.fdl: none are written",)
    assert verify_export(tmp_path / "out", source=folder).passed


def test_a_model_that_is_there_is_not_touched_unless_forced(saved, tmp_path):
    folder, _ = saved("bert", "base")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/config.json").write_text("mine")
    with pytest.raises(WeightsError, match="already holds config.json"):
        export_source(folder, tmp_path / "out")
    assert (tmp_path / "out/config.json").read_text() == "mine"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]
    export_source(folder, tmp_path / "out", force=True)
    assert verify_export(tmp_path / "out").passed
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_of_a_model_that_was_replaced_is_read(talking, saved, tmp_path):
    old, _ = saved("roberta", "mlm")
    out = tmp_path / "out"
    export_source(old, out)
    save_sharded_from(AutoModel.from_pretrained(old), out, max_shard_bytes=10_000)
    for name in ("vocab.json", "merges.txt", "config.source.json", "notes.txt"):
        (out / name).write_text("old")
    folder, _ = talking("bert", "seqcls")
    export_source(folder, out, force=True)
    left = {path.name for path in out.iterdir()}
    assert left == {"config.json", "model.safetensors", "tokenizer.json", "notes.txt"}
    assert verify_export(out, source=folder).passed


def test_a_pretraining_model_is_exported_as_its_backbone(saved, tmp_path):
    folder, _ = saved("bert", "mlm")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForPreTraining"]
    (folder / "config.json").write_text(json.dumps(config))
    exported = export_source(folder, tmp_path / "out")
    assert exported.head == "base"
    assert "BertForPreTraining" in exported.notes[0]
    assert json.loads((tmp_path / "out/config.json").read_text())["architectures"] == ["BertModel"]
    assert export_source(folder, tmp_path / "mlm", head="mlm").head == "mlm"
    assert verify_export(tmp_path / "mlm").passed


def test_keys_that_mean_nothing_here_are_written_back(saved, tmp_path):
    folder, _ = saved("bert", "base")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "own": {"a": 1}}))
    export_source(folder, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["own"] == {"a": 1}


def test_a_checkpoint_without_a_config_is_refused(saved, tmp_path):
    folder, _ = saved("bert", "base")
    graph = AutoModel.from_pretrained(folder)
    graph.clear_source_config()
    graph.save_checkpoint(tmp_path / "m.fdl")
    with pytest.raises(ConfigError, match=r"(?s)m\.config\.json.*--config"):
        export_checkpoint(tmp_path / "m.fdl", tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForNextSentencePrediction"]
    (tmp_path / "c.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedArchitectureError, match="NextSentence"):
        export_checkpoint(tmp_path / "m.fdl", tmp_path / "out", config=tmp_path / "c.json")
    assert not (tmp_path / "out").exists()
    exported = export_checkpoint(
        tmp_path / "m.fdl",
        tmp_path / "out",
        config=folder / "config.json",
        preserve_source_config=True,
    )
    assert "config.source.json" in exported.files
    kept = (tmp_path / "out/config.source.json").read_bytes()
    assert kept == (folder / "config.json").read_bytes()


def test_half_precision_stays_half(saved, tmp_path):
    folder, _ = saved("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.bfloat16)
    head.graph.save_checkpoint(tmp_path / "m.fdl")
    export_checkpoint(tmp_path / "m.fdl", tmp_path / "out")
    stored = load_file(tmp_path / "out/model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"


def test_an_untied_head_comes_back_untied(saved, tmp_path):
    folder, _ = saved("bert", "mlm", tie_word_embeddings=False)
    export_source(folder, tmp_path / "out")
    assert verify_export(tmp_path / "out").passed
    head = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert "cls.predictions.decoder.weight" in head.state_dict()


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("BertModel", "base"),
        ("XLMRobertaForQuestionAnswering", "qa"),
        ("AlbertForMaskedLM", "mlm"),
        ("BertForPreTraining", None),
        (None, None),
    ],
)
def test_classes_of_the_reference_are_known_by_their_ending(name, head):
    assert head_of(name) == head
