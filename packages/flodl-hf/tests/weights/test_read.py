import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from flodl_hf import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    DtypeError,
    KeyCollisionError,
    KeySetError,
    TiedWeightError,
    WeightsError,
    load_safetensors_into,
    save_safetensors_from,
)

CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=8,
    max_position_embeddings=20,
)


@pytest.fixture
def head():
    return BertForMaskedLM.build(CONFIG)


@pytest.fixture
def stored(head):
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(tensor.shape, generator=generator)
        for name, tensor in head.state_dict().items()
    }


def refuses(head, tensors, error, match=None, **options):
    """Assert that a load is refused and that no tensor changed."""
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with pytest.raises(error, match=match) as caught:
        load_safetensors_into(head.graph, tensors, **options)
    after = head.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    return caught.value


def test_every_tensor_is_loaded(head, stored):
    report = load_safetensors_into(head.graph, stored)
    assert report.is_complete
    assert sorted(report.loaded) == sorted(stored)
    assert report.dtypes == {"float32": len(stored)}
    assert all(torch.equal(head.state_dict()[name], stored[name]) for name in stored)


def test_a_missing_tensor_is_named(head, stored):
    del stored["bert.encoder.layer.1.output.dense.bias"]
    error = refuses(head, stored, KeySetError, r"1 missing \(bert.encoder.layer.1.output.dense")
    assert error.report.missing == ["bert.encoder.layer.1.output.dense.bias"]


def test_a_tensor_that_is_left_over_is_named_unless_allowed(head, stored):
    stored["extra.weight"] = torch.zeros(2)
    refuses(head, stored, KeySetError, r"1 not in the model \(extra.weight\)")
    assert load_safetensors_into(head.graph, stored, allow_unused=["extra."]).ignored == [
        "extra.weight"
    ]
    assert load_safetensors_into(head.graph, stored, strict=False).unused == ["extra.weight"]


def test_another_shape_is_named_with_both_shapes(head, stored):
    stored["cls.predictions.bias"] = torch.zeros(41)
    refuses(head, stored, KeySetError, r"cls.predictions.bias: stored \[41\], the model has \[40\]")


def test_more_than_twenty_names_are_counted(head, stored):
    few = dict(list(stored.items())[:5])
    error = refuses(head, few, KeySetError)
    assert f"... and {len(stored) - 5 - 20} more" in str(error)


def test_whole_numbers_are_no_parameter(head, stored):
    stored["cls.predictions.bias"] = torch.zeros(40, dtype=torch.long)
    refuses(head, stored, DtypeError, "cls.predictions.bias is stored as int64")


def test_old_names_of_norms_are_read(head, stored):
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in stored.items()
    }
    assert old.keys() != stored.keys()
    assert load_safetensors_into(head.graph, old).is_complete


def test_gamma_outside_a_norm_is_left_alone(head, stored):
    stored["own.gamma"] = torch.zeros(1)
    refuses(head, stored, KeySetError, r"own.gamma")


def test_both_names_of_a_norm_collide(head, stored):
    stored["bert.embeddings.LayerNorm.gamma"] = torch.zeros(16)
    refuses(head, stored, KeyCollisionError, "LayerNorm.gamma.*LayerNorm.weight")


def test_names_can_be_changed_before_anything_else(head, stored):
    odd = {f"module.{name}": tensor for name, tensor in stored.items()}
    report = load_safetensors_into(
        head.graph, odd, rename=lambda name: name.removeprefix("module.")
    )
    assert report.is_complete


def test_backbone_without_prefix_loads_into_a_head_that_may_be_new(saved):
    folder, model = saved("bert", "base")
    names = load_file(folder / "model.safetensors")
    assert not any(name.startswith("bert.") for name in names)
    with pytest.raises(KeySetError, match="new_head=True"):
        AutoModelForTokenClassification.from_pretrained(folder)
    head = AutoModelForTokenClassification.from_pretrained(folder, new_head=True, num_labels=5)
    assert sorted(head.load_report.new) == ["classifier.bias", "classifier.weight"]
    assert head.classifier.weight.shape == (5, 32)
    assert head.labels == tuple(f"LABEL_{index}" for index in range(5))
    assert torch.equal(
        head.bert.get_submodule("embeddings.word_embeddings").weight,
        model.embeddings.word_embeddings.weight,
    )


def test_backbone_with_prefix_loads_without_its_head(saved):
    folder, model = saved("roberta", "tokcls")
    graph = AutoModel.from_pretrained(folder)
    assert torch.equal(
        graph.state_dict()["embeddings.word_embeddings.weight"],
        model.roberta.embeddings.word_embeddings.weight,
    )


def test_copies_of_the_word_table_are_dropped_when_equal(head, stored):
    table = stored["bert.embeddings.word_embeddings.weight"]
    stored["cls.predictions.decoder.weight"] = table.clone()
    stored["cls.predictions.decoder.bias"] = stored["cls.predictions.bias"].clone()
    report = load_safetensors_into(head.graph, stored)
    assert report.tied == ["cls.predictions.decoder.weight"]
    assert "cls.predictions.decoder.weight" not in head.state_dict()


def test_a_copy_of_the_word_table_that_differs_stays_as_in_the_reference(saved, caplog):
    from flodl_hf.verify.oracle import load_oracle, outputs_of

    for family, name in (
        ("bert", "cls.predictions.decoder.weight"),
        ("distilbert", "vocab_projector.weight"),
    ):
        folder, _ = saved(family, "mlm")
        tensors = load_file(folder / "model.safetensors")
        tensors[name] = torch.randn(99, 32)
        if family == "bert":
            tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        ours = AutoModelForMaskedLM.from_pretrained(folder)
        assert ours.load_report.untied == [name]
        assert "kept apart" in caplog.text
        inputs = {"input_ids": torch.arange(3, 10)[None]}
        reference, _, _ = load_oracle(folder, "mlm")
        with torch.no_grad():
            found = ours(**inputs)
        expected = outputs_of(reference, "mlm", inputs)["logits"]
        assert torch.allclose(found, expected, atol=1e-5)
        assert name in ours.state_dict()
        assert ours.config.tie_word_embeddings is False


def test_a_copy_of_a_bias_that_differs_is_an_error(head, stored):
    stored["cls.predictions.decoder.bias"] = stored["cls.predictions.bias"] + 1
    refuses(head, stored, TiedWeightError, "one bias, but differ")


def test_a_copy_of_the_word_table_has_its_shape_and_a_floating_dtype(head, stored):
    name = "cls.predictions.decoder.weight"
    error = refuses(head, stored | {name: torch.zeros(39, 16)}, KeySetError, name)
    assert error.report.mismatched == [(name, (39, 16), (40, 16))]
    refuses(head, stored | {name: torch.zeros(40, 16, dtype=torch.int8)}, DtypeError, name)


def test_either_name_of_the_bias_is_enough(head, stored):
    bias = stored.pop("cls.predictions.bias")
    stored["cls.predictions.decoder.bias"] = bias
    load_safetensors_into(head.graph, stored)
    assert torch.equal(head.state_dict()["cls.predictions.bias"], bias)


def test_what_old_files_hold_besides_is_ignored(head, stored):
    more = {
        "bert.embeddings.position_ids": torch.arange(20)[None],
        "cls.seq_relationship.weight": torch.zeros(2, 16),
        "bert.pooler.dense.weight": torch.zeros(16, 16),
    }
    report = load_safetensors_into(head.graph, {**stored, **more})
    assert sorted(report.ignored) == sorted(more)


def test_a_cast_happens_while_reading(head, stored):
    load_safetensors_into(head.graph, stored, dtype=torch.bfloat16)
    assert {tensor.dtype for tensor in head.state_dict().values()} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_makes_the_round_trip_byte_for_byte(head, stored, tmp_path, dtype):
    cast = {name: tensor.to(dtype) for name, tensor in stored.items()}
    save_file(cast, tmp_path / "in.safetensors")
    load_safetensors_into(head.graph, tmp_path / "in.safetensors")
    save_safetensors_from(head.graph, tmp_path / "out.safetensors")
    back = load_file(tmp_path / "out.safetensors")
    assert back.keys() == cast.keys()
    for name, tensor in cast.items():
        assert back[name].dtype == dtype
        assert torch.equal(back[name].view(torch.uint8), tensor.view(torch.uint8))


def test_a_truncated_file_says_how_long_it_is(head, stored, tmp_path):
    save_safetensors_from(head.graph, tmp_path / "m.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(whole[:-100])
    refuses(head, tmp_path / "m.safetensors", WeightsError, f"{len(whole) - 100} bytes long")


def test_a_file_that_is_gone_is_named(head, tmp_path):
    refuses(head, tmp_path / "no.safetensors", WeightsError, "no.safetensors")


def test_bytes_are_read_and_wrong_ones_refused(head, tmp_path):
    save_safetensors_from(head.graph, tmp_path / "m.safetensors")
    assert load_safetensors_into(head.graph, (tmp_path / "m.safetensors").read_bytes()).is_complete
    refuses(head, b"nothing of the kind", WeightsError, "19 bytes")


def write_shards(folder, tensors):
    names = sorted(tensors)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {name: file for file, part in files.items() for name in part}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": index}))
    return path, index


def test_shards_are_read(head, stored, tmp_path):
    write_shards(tmp_path, stored)
    assert load_safetensors_into(head.graph, tmp_path).is_complete
    assert all(torch.equal(head.state_dict()[name], stored[name]) for name in stored)


def test_a_shard_must_hold_what_the_index_says(head, stored, tmp_path):
    path, index = write_shards(tmp_path, stored)
    index["bert.embeddings.LayerNorm.bias"] = "b.safetensors"
    index["bert.embeddings.LayerNorm.weight"] = "b.safetensors"
    path.write_text(json.dumps({"weight_map": index}))
    refuses(head, tmp_path, WeightsError, "does not have it")


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/a.safetensors", "", "..", "x\\y"])
def test_an_index_names_no_file_elsewhere(head, stored, tmp_path, name):
    path, index = write_shards(tmp_path, stored)
    index["bert.embeddings.LayerNorm.bias"] = name
    path.write_text(json.dumps({"weight_map": index}))
    refuses(head, tmp_path, WeightsError, "beside the index")


def test_a_shard_that_is_missing_is_named(saved):
    folder, _ = saved("bert", "seqcls")
    write_shards(folder, load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    assert AutoModelForSequenceClassification.from_pretrained(folder).load_report.is_complete
    (folder / "b.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"b\.safetensors, which is not there"):
        AutoModelForSequenceClassification.from_pretrained(folder)


@pytest.mark.parametrize("shape", [(), (0, 32)])
def test_a_classifier_without_dimensions_is_refused_or_new(saved, shape):
    folder, _ = saved("bert", "seqcls")
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"classifier.weight": torch.ones(shape)}, folder / "model.safetensors")
    stored = re.escape(f"classifier.weight: stored {list(shape)}, the model has [3, 32]")
    with pytest.raises(KeySetError, match=stored):
        AutoModelForSequenceClassification.from_pretrained(folder)
    head = AutoModelForSequenceClassification.from_pretrained(folder, new_head=True)
    assert head.load_report.new == ["classifier.weight"]


def test_names_of_labels_that_are_given_say_how_many_there_are(saved):
    folder, _ = saved("bert", "seqcls")
    load = AutoModelForSequenceClassification.from_pretrained
    with pytest.raises(KeySetError, match=r"stored \[3\], the model has \[2\]"):
        load(folder, id2label={0: "no", 1: "yes"})
    assert load(folder, id2label={0: "no", 1: "yes"}, new_head=True).labels == ("no", "yes")
    assert load(folder, id2label={0: "a", 1: "b", 2: "c"}).labels == ("a", "b", "c")
    for wrong in ({}, {1: "a", 2: "b", 3: "c"}, {"0": "a", "1": "b", "2": "c"}):
        with pytest.raises(ValueError, match="id2label"):
            load(folder, id2label=wrong)
    with pytest.raises(ValueError, match="names 3 classes, num_labels=2"):
        load(folder, id2label={0: "a", 1: "b", 2: "c"}, num_labels=2)


def test_code_that_a_config_names_is_not_run_and_said(saved, caplog):
    folder, model = saved("bert", "seqcls")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForSequenceClassification": "modeling_own.Own"}
    (folder / "config.json").write_text(json.dumps(config))
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    AutoModelForSequenceClassification.from_pretrained(folder)
    assert torch.equal(head.classifier.weight, model.classifier.weight)
    assert caplog.text.count("auto_map names code of its own, which is never run") == 1


def test_several_dtypes_in_one_file_are_kept_and_said(saved, caplog):
    folder, _ = saved("bert", "seqcls")
    tensors = load_file(folder / "model.safetensors")
    mixed = tensors | {"classifier.weight": tensors["classifier.weight"].half()}
    save_file(mixed, folder / "model.safetensors")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    assert head.classifier.weight.dtype == torch.float16
    assert "float16 and float32 are kept as they are; dtype=" in caplog.text
    caplog.clear()
    head = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    assert head.classifier.weight.dtype == torch.float32
    assert "dtype=" not in caplog.text


def test_large_models_are_written_as_shards_that_the_reference_reads(saved, tmp_path):
    from flodl_hf.verify.oracle import load_oracle
    from flodl_hf.weights.write import save_sharded_from

    folder, model = saved("bert", "seqcls")
    ours = BertForSequenceClassification.from_pretrained(folder)
    files = save_sharded_from(ours.graph, tmp_path, max_shard_bytes=30_000)
    assert len(files) > 2
    (tmp_path / "config.json").write_text(ours.config.to_json())
    again, missing, unexpected = load_oracle(tmp_path, "seqcls")
    assert not missing
    assert not unexpected
    assert torch.equal(again.classifier.weight, model.classifier.weight)
    assert BertForSequenceClassification.from_pretrained(tmp_path).load_report.is_complete


def test_the_file_of_another_number_of_labels_is_refused_with_both_shapes(saved):
    folder, _ = saved("bert", "seqcls")
    with pytest.raises(KeySetError, match=r"stored \[3, 32\], the model has \[7, 32\]"):
        AutoModelForSequenceClassification.from_pretrained(folder, num_labels=7)
    head = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=7, new_head=True)
    assert len(head.labels) == 7
    assert not any("pooler" in name for name in head.load_report.new)


@pytest.mark.parametrize(("family", "labels"), [("bert", 2), ("roberta", 2), ("deberta-v2", 1)])
def test_the_number_of_labels_is_read_from_the_weights(saved, family, labels):
    folder, _ = saved(family, "seqcls", labels=labels)
    config = json.loads((folder / "config.json").read_text())
    config.pop("id2label", None)
    config.pop("num_labels", None)
    (folder / "config.json").write_text(json.dumps(config))
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    assert len(head.labels) == labels


def test_a_backbone_is_never_initialized_in_silence(saved):
    folder, _ = saved("bert", "base")
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.0.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(KeySetError, match=r"encoder\.layer\.0\.output\.dense\.weight"):
        AutoModelForSequenceClassification.from_pretrained(folder, new_head=True)


def test_new_heads_are_alike_in_every_process(saved):
    folder, _ = saved("bert", "base")
    heads = [
        AutoModelForSequenceClassification.from_pretrained(folder, new_head=True, num_labels=4)
        for _ in range(2)
    ]
    assert torch.equal(heads[0].classifier.weight, heads[1].classifier.weight)
    assert heads[0].classifier.weight.std().item() == pytest.approx(0.02, rel=0.3)


def test_tensors_that_are_not_used_are_said_once_and_refused_on_request(saved, caplog):
    folder, _ = saved("bert", "mlm")
    AutoModelForTokenClassification.from_pretrained(folder, new_head=True, num_labels=2)
    assert "5 stored tensors are not used: cls.predictions.bias" in caplog.text
    with pytest.raises(KeySetError, match="new_head=True"):
        AutoModelForSequenceClassification.from_pretrained(folder)
    with pytest.raises(KeySetError, match="not in the model"):
        AutoModelForTokenClassification.from_pretrained(folder, new_head=True, strict="all")


def test_mapped_files_give_the_same_values(saved):
    folder, _ = saved("bert", "base")
    mapped = AutoModel.from_pretrained(folder, mmap=True)
    copied = AutoModel.from_pretrained(folder)
    ids = torch.arange(8)[None]
    with torch.no_grad():
        results = [g(ids, None, None, None) for g in (mapped, copied)]
    assert torch.equal(*results)
