"""Names and numbers of tensors: those of the reference, for every family and head."""

import pytest
import torch
from safetensors.torch import load_file

from flodl_hf import (
    AlbertConfig,
    AlbertModel,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    DistilBertConfig,
    DistilBertModel,
    RobertaConfig,
    RobertaModel,
    save_safetensors_from,
)
from flodl_hf.export import export_source

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")
HEADS = {
    "mlm": AutoModelForMaskedLM,
    "seqcls": AutoModelForSequenceClassification,
    "tokcls": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", ["base", *HEADS])
def test_keys_and_bytes_survive_loading_and_saving(saved, tmp_path, family, head):
    folder, _ = saved(family, head)
    if head == "base":
        graph = AutoModel.from_pretrained(folder, with_pooler=None)
    else:
        graph = HEADS[head].from_pretrained(folder).graph
    save_safetensors_from(graph, tmp_path / "out.safetensors")
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "out.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("head", ["base", "mlm"])
def test_a_norm_of_positions_that_nothing_uses_is_kept(saved, tmp_path, head):
    changes = {"relative_attention": False, "position_biased_input": True}
    folder, _ = saved("deberta-v2", head, **changes)
    exported = export_source(folder, tmp_path / "out", head=head).folder
    before, after = (load_file(path / "model.safetensors") for path in (folder, exported))
    assert any(name.endswith("encoder.LayerNorm.weight") for name in before)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("model", "config", "with_pooler", "count"),
    [
        (BertModel, BertConfig.bert_base_uncased(), True, 199),
        (BertModel, BertConfig.bert_base_uncased(), False, 197),
        (RobertaModel, RobertaConfig.roberta_base(), True, 199),
        (DistilBertModel, DistilBertConfig.distilbert_base_uncased(), False, 100),
        (AlbertModel, AlbertConfig.albert_base_v2(), True, 25),
        (DebertaV2Model, DebertaV2Config.deberta_v3_base(), False, 198),
    ],
)
def test_published_models_have_their_number_of_tensors(model, config, with_pooler, count):
    from flodl_hf.encoder.build import build_backbone

    with torch.device("meta"):
        graph = build_backbone(config, model.spec, with_pooler=with_pooler)
    assert len(graph.state_dict()) == count


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_has_one_set_of_names(saved, family):
    folder, _ = saved(family, "mlm")
    head = AutoModelForMaskedLM.from_pretrained(folder)
    names = {name for name, _ in head.named_parameters()}
    assert names == set(head.state_dict())
    assert all(head.get_parameter(name) is not None for name in names)
    wrapped = torch.nn.ModuleDict({"inner": head})
    assert {f"inner.{name}" for name in names} == set(wrapped.state_dict())
    wrapped.load_state_dict(wrapped.state_dict())
    head.load_state_dict(head.state_dict())
    call = torch.func.functional_call(
        head, dict(head.named_parameters()), (torch.ones(1, 3).long(),)
    )
    assert call.shape == (1, 3, 99)


def test_paths_reach_into_the_backbone(saved):
    folder, _ = saved("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    ids = torch.ones(2, 5, dtype=torch.long)
    head(ids)
    assert head.graph.tagged_at("bert.layer_2") is None, "layers are kept on request only"
    head.bert.set_retained("all")
    head(ids)
    assert head.graph.tagged_at("bert.layer_2").shape == (2, 5, 32)
    assert head.graph.tagged_at("bert.hidden").shape == (2, 5, 32)
    assert head.graph.tagged_at("bert.pooler").shape == (2, 32)
    head.graph.freeze("bert")
    trained = {name for name, parameter in head.named_parameters() if parameter.requires_grad}
    assert trained == {"classifier.weight", "classifier.bias"}


def test_replacing_a_part_of_a_layer_takes_effect(saved):
    folder, _ = saved("bert", "base")
    graph = AutoModel.from_pretrained(folder)
    ids = torch.arange(6)[None]
    before = graph(ids, None, None, None)
    graph.set_submodule("encoder.layer.0.attention.self.query", torch.nn.Linear(32, 32))
    assert not torch.allclose(before, graph(ids, None, None, None))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_token_at_all_gives_numbers_in_every_dtype(saved, family):
    folder, _ = saved(family, "base")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        graph = AutoModel.from_pretrained(folder, dtype=dtype)
        ids = torch.randint(3, 99, (2, 6))
        mask = torch.tensor([[1, 1, 1, 0, 0, 0], [0] * 6])
        given = dict.fromkeys(graph.input_names, None)
        given |= {"input_ids": ids, "attention_mask": mask}
        with torch.no_grad():
            assert graph(**given).isfinite().all()


@pytest.mark.parametrize("family", FAMILIES)
def test_real_tokens_are_the_same_alone_and_in_a_padded_batch(saved, family):
    folder, model = saved(family, "base")
    graph = AutoModel.from_pretrained(folder)
    ids = torch.randint(3, 99, (1, 5))
    padded = torch.cat([ids, torch.full((1, 9), model.config.pad_token_id)], dim=1)
    given = dict.fromkeys(graph.input_names, None)
    with torch.no_grad():
        alone = graph(**{**given, "input_ids": ids})
        mask = torch.tensor([[1] * 5 + [0] * 9])
        among = graph(**{**given, "input_ids": padded, "attention_mask": mask})
    assert torch.allclose(alone, among[:, :5], atol=1e-5)


@pytest.mark.parametrize(
    "mask",
    [
        torch.tensor([[1, 1, 0]]),
        torch.tensor([[1.0, 1.0, 0.0]]),
        torch.tensor([[True, True, False]]),
        torch.tensor([[True, True, False]])[:, None, None],
    ],
)
def test_a_mask_of_any_form_means_the_same(saved, mask):
    folder, _ = saved("bert", "base")
    graph = AutoModel.from_pretrained(folder)
    ids = torch.tensor([[5, 6, 0]])
    expected = graph(ids, torch.tensor([[1, 1, 0]]), None, None)
    assert torch.equal(graph(ids, mask, None, None), expected)
