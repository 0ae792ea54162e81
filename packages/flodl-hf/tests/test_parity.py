"""Every family and every head against the reference, with weights that hide nothing."""

import pytest
import torch

from flodl_hf import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from flodl_hf.verify.oracle import outputs_of

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")
HEADS = {
    "mlm": AutoModelForMaskedLM,
    "seqcls": AutoModelForSequenceClassification,
    "tokcls": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
}
CELLS = [(family, head) for family in FAMILIES for head in ("base", *HEADS)]
VARIANTS = [
    ("albert", "base", {"num_hidden_layers": 7, "num_hidden_groups": 3, "inner_group_num": 2}),
    ("albert", "mlm", {"hidden_act": "gelu", "num_hidden_groups": 3}),
    ("bert", "mlm", {"hidden_act": "gelu_new"}),
    ("bert", "mlm", {"tie_word_embeddings": False}),
    ("bert", "base", {"hidden_act": "quick_gelu", "num_attention_heads": 1}),
    ("bert", "base", {"hidden_act": "mish", "hidden_size": 33, "num_attention_heads": 3}),
    ("roberta", "mlm", {"hidden_act": "relu", "tie_word_embeddings": False}),
    ("roberta", "seqcls", {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    ("distilbert", "mlm", {"tie_word_embeddings": False, "activation": "relu"}),
    ("albert", "mlm", {"tie_word_embeddings": False}),
    ("deberta-v2", "mlm", {"legacy": False}),
    ("deberta-v2", "mlm", {"tie_word_embeddings": False}),
    ("deberta-v2", "base", {"conv_kernel_size": 3}),
    ("deberta-v2", "base", {"conv_kernel_size": 5, "conv_groups": 4, "conv_act": "gelu"}),
    ("deberta-v2", "base", {"share_att_key": False}),
    ("deberta-v2", "base", {"share_att_key": False, "pos_att_type": ["c2p"]}),
    ("deberta-v2", "base", {"share_att_key": False, "pos_att_type": ["p2c"]}),
    ("deberta-v2", "base", {"pos_att_type": "c2p"}),
    ("deberta-v2", "base", {"pos_att_type": []}),
    ("deberta-v2", "base", {"relative_attention": False, "position_biased_input": True}),
    ("deberta-v2", "base", {"position_buckets": -1}),
    ("deberta-v2", "base", {"position_buckets": 32, "max_relative_positions": 5}),
    ("deberta-v2", "base", {"position_biased_input": True, "type_vocab_size": 2}),
    ("deberta-v2", "mlm", {"embedding_size": 16, "norm_rel_ebd": "none"}),
    ("deberta-v2", "seqcls", {"pooler_hidden_act": "tanh", "cls_dropout": 0.3}),
]


def inputs_for(config, length, *, on_left=False):
    """Return padded ids with all that belongs to them: rows of ``length``, 7 less, and 3 tokens."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, config.vocab_size, (3, length), generator=generator)
    mask = torch.ones(3, length, dtype=torch.long)
    for row, kept in enumerate((length, max(1, length - 7), min(3, length))):
        empty = slice(0, length - kept) if on_left else slice(kept, length)
        mask[row, empty] = 0
    ids[mask == 0] = config.pad_token_id
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.randint(0, 2, ids.shape, generator=generator)
    if on_left:
        first = config.pad_token_id + 1 if "roberta" in config.model_type else 0
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0) + first
    return inputs


def ours(folder, head, inputs):
    if head == "base":
        graph = AutoModel.from_pretrained(folder, with_pooler=None)
        with torch.no_grad():
            graph(**{name: inputs.get(name) for name in graph.input_names})
        tags = [tag for tag in ("hidden", "pooler") if tag in graph.tag_names]
        return {tag: graph.tagged(tag) for tag in tags}
    model = HEADS[head].from_pretrained(folder)
    with torch.no_grad():
        return {"logits": model(**inputs)}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, reference in expected.items():
        gate = 1e-5 * max(1.0, reference.abs().max().item())
        assert (found[name] - reference).abs().max().item() <= gate, name


@pytest.mark.parametrize(("family", "head"), CELLS)
def test_every_cell_equals_the_reference(saved, family, head):
    folder, model = saved(family, head)
    inputs = inputs_for(model.config, 20)
    assert_equal(ours(folder, head, inputs), outputs_of(model, head, inputs))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "xlm-roberta"])
@pytest.mark.parametrize("head", ["base", "mlm"])
def test_families_of_plain_layers_are_ten_times_closer(saved, family, head):
    """Close enough that an epsilon of another family would show."""
    folder, model = saved(family, head)
    inputs = inputs_for(model.config, 20)
    expected = outputs_of(model, head, inputs)
    for name, found in ours(folder, head, inputs).items():
        assert (found - expected[name]).abs().max() <= 1e-6 * expected[name].abs().max()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [1, 8, 62])
def test_every_length_equals_the_reference(saved, family, length):
    folder, model = saved(family, "base")
    inputs = inputs_for(model.config, length)
    assert_equal(ours(folder, "base", inputs), outputs_of(model, "base", inputs))


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_the_left_equals_the_reference(saved, family):
    folder, model = saved(family, "base")
    inputs = inputs_for(model.config, 20, on_left=True)
    assert_equal(ours(folder, "base", inputs), outputs_of(model, "base", inputs))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_without_a_mask_equals_the_reference(saved, family):
    folder, model = saved(family, "base")
    inputs = {"input_ids": inputs_for(model.config, 20)["input_ids"][:1]}
    assert_equal(ours(folder, "base", inputs), outputs_of(model, "base", inputs))


def test_deberta_beyond_its_largest_distance_equals_the_reference(saved):
    folder, model = saved("deberta-v2", "base")
    inputs = inputs_for(model.config, 150)
    assert_equal(ours(folder, "base", inputs), outputs_of(model, "base", inputs))


@pytest.mark.parametrize(("family", "head", "changes"), VARIANTS)
def test_every_variant_equals_the_reference(saved, family, head, changes):
    folder, model = saved(family, head, **changes)
    inputs = inputs_for(model.config, 20)
    assert_equal(ours(folder, head, inputs), outputs_of(model, head, inputs))
