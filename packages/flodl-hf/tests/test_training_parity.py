"""Gradients, losses and dropout against the reference, in training mode."""

import pytest
import torch
from torch import nn

from flodl_hf import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertForMaskedLM,
)

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")
HEADS = {
    "mlm": AutoModelForMaskedLM,
    "seqcls": AutoModelForSequenceClassification,
    "tokcls": AutoModelForTokenClassification,
    "qa": AutoModelForQuestionAnswering,
}
NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}
NO_DROPOUT_DISTILBERT = {
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "seq_classif_dropout": 0.0,
    "qa_dropout": 0.0,
}


def still(family):
    return NO_DROPOUT_DISTILBERT if family == "distilbert" else NO_DROPOUT


def batch_for(config, head):
    """Return inputs, the labels as ours takes them, and as the reference does."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, config.vocab_size, (3, 12), generator=generator)
    mask = torch.ones(3, 12, dtype=torch.long)
    mask[1, 8:] = mask[2, 3:] = 0
    ids[mask == 0] = config.pad_token_id
    inputs = {"input_ids": ids, "attention_mask": mask}
    if head == "qa":
        starts, ends = torch.tensor([1, 40, 0]), torch.tensor([5, 3, 2])
        return inputs, (starts, ends), {"start_positions": starts, "end_positions": ends}
    if head == "seqcls":
        labels = torch.tensor([2, 0, 1])
    else:
        count = config.vocab_size if head == "mlm" else 3
        labels = torch.randint(0, count, ids.shape, generator=generator)
        labels = labels.masked_fill(mask == 0, -100)
    return inputs, labels, {"labels": labels}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", HEADS)
def test_loss_and_every_gradient_equal_the_reference(saved, family, head):
    folder, model = saved(family, head, **still(family))
    model.train()
    ours = HEADS[head].from_pretrained(folder).train()
    inputs, labels, theirs = batch_for(model.config, head)
    expected = model(**inputs, **theirs).loss
    expected.backward()
    loss = ours.compute_loss(inputs, labels)
    loss.backward()
    assert abs(loss.item() - expected.item()) <= 1e-5 * max(1, abs(expected.item()))
    reference = dict(model.named_parameters(remove_duplicate=False))
    mine = dict(ours.named_parameters())
    assert {id(p) for p in reference.values()} == {id(reference[name]) for name in mine}
    for name, parameter in mine.items():
        wanted = reference[name].grad
        assert (parameter.grad is None) == (wanted is None), name
        if wanted is not None:
            gate = 1e-5 * max(1.0, wanted.abs().max().item())
            assert (parameter.grad - wanted).abs().max().item() <= gate, name


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((family, {}) for family in FAMILIES),
        ("deberta-v2", {"relative_attention": False, "position_biased_input": True}),
        ("deberta-v2", {"pos_att_type": []}),
    ],
)
def test_gradients_of_padded_positions_equal_the_reference_too(saved, family, changes):
    """A mean over all positions, or a probe, may look at them."""
    folder, model = saved(family, "base", **changes)
    ours = AutoModel.from_pretrained(folder)
    inputs, _, _ = batch_for(model.config, "tokcls")
    expected = model(**inputs).last_hidden_state
    found = ours(**{name: inputs.get(name) for name in ours.input_names})
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    reference = dict(model.named_parameters())
    for name, parameter in ours.named_parameters():
        wanted = reference[name].grad
        assert (parameter.grad is None) == (wanted is None), name
        if wanted is not None:
            gate = 1e-5 * max(1.0, wanted.abs().max().item())
            assert (parameter.grad - wanted).abs().max().item() <= gate, name


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2"])
def test_twenty_steps_of_sgd_lose_the_same(saved, family):
    folder, model = saved(family, "seqcls", **still(family))
    model.train()
    ours = AutoModelForSequenceClassification.from_pretrained(folder).train()
    inputs, labels, theirs = batch_for(model.config, "seqcls")
    steps = [torch.optim.SGD(m.parameters(), lr=1e-3) for m in (ours, model)]
    for _ in range(20):
        losses = [ours.compute_loss(inputs, labels), model(**inputs, **theirs).loss]
        for step, loss in zip(steps, losses, strict=True):
            step.zero_grad()
            loss.backward()
            step.step()
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
    assert losses[0].item() < 0.9 * 5


@pytest.mark.parametrize(
    ("problem", "count", "labels"),
    [
        (None, 1, torch.tensor([0.3, -1.0, 2.0])),
        (None, 3, torch.tensor([0, 2, 1])),
        (None, 3, torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1]])),
        ("regression", 3, torch.tensor([[0.5, 0, 1], [2, 0, 0], [1, 1, -1.0]])),
        ("single_label_classification", 3, torch.tensor([0, 2, 1])),
        ("multi_label_classification", 3, torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1]])),
    ],
)
@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_each_kind_of_sequence_loss_equals_the_reference(saved, family, problem, count, labels):
    folder, model = saved(family, "seqcls", labels=count)
    model.config.problem_type = problem
    ours = AutoModelForSequenceClassification.from_pretrained(folder, problem_type=problem)
    inputs, _, _ = batch_for(model.config, "seqcls")
    with torch.no_grad():
        expected = model(**inputs, labels=labels).loss
        loss = ours.compute_loss(inputs, labels)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_negative_classes_do_not_count_for_deberta(saved):
    folder, model = saved("deberta-v2", "seqcls")
    ours = AutoModelForSequenceClassification.from_pretrained(folder)
    inputs, _, _ = batch_for(model.config, "seqcls")
    # The reference picks the rows with an index that repeats the first; one row is unambiguous.
    labels = torch.tensor([1, -1, -1])
    with torch.no_grad():
        expected = model(**inputs, labels=labels).loss
        assert ours.compute_loss(inputs, labels).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("head", ["mlm", "tokcls", "qa"])
def test_a_batch_in_which_nothing_counts_has_no_loss_and_no_gradient(saved, head):
    folder, model = saved("bert", head)
    ours = HEADS[head].from_pretrained(folder).train()
    inputs, _, _ = batch_for(model.config, head)
    nothing = torch.full((3, 12), -100)
    labels = (torch.tensor([12, 12, 12]),) * 2 if head == "qa" else nothing
    loss = ours.compute_loss(inputs, labels)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in ours.parameters())


@pytest.mark.parametrize("head", ["mlm", "tokcls", "qa", "seqcls"])
def test_sum_over_count_is_the_mean(saved, head):
    folder, model = saved("bert", head)
    ours = HEADS[head].from_pretrained(folder)
    inputs, labels, _ = batch_for(model.config, head)
    total, count = ours.compute_loss(inputs, labels, reduction="sum")
    assert (total / count).item() == pytest.approx(ours.compute_loss(inputs, labels).item())


def test_only_the_chosen_positions_are_decoded_with_the_same_loss(saved):
    for family in ("bert", "distilbert"):
        folder, model = saved(family, "mlm")
        ours = AutoModelForMaskedLM.from_pretrained(folder)
        inputs, labels, _ = batch_for(model.config, "mlm")
        positions = torch.tensor([[1, 4], [0, 2], [2, 2]])
        picked = labels.gather(1, positions)
        picked[2, 1] = -100
        sparse = torch.full_like(labels, -100).scatter(1, positions, labels.gather(1, positions))
        few = ours.compute_loss(inputs, picked, positions=positions)
        assert few.item() == pytest.approx(ours.compute_loss(inputs, sparse).item(), rel=1e-6)


# Names of what drops, and how much: DistilBERT drops nothing after the attention's output, ALBERT
# nothing after the feed-forward part.
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("part", ["output", "ffn"])
def test_dropout_stands_where_the_reference_has_it(saved, family, part):
    drops = {"distilbert": {"output": False}, "albert": {"ffn": False}}
    every = {"dropout": 0.5} if family == "distilbert" else {"hidden_dropout_prob": 0.5}
    folder, _ = saved(family, "tokcls", **{**still(family), **every})
    ours = AutoModelForTokenClassification.from_pretrained(folder)
    from flodl_hf.encoder.layer import PostNorm

    layer = next(module for module in ours.modules() if isinstance(module, PostNorm))
    p = layer._p_output if part == "output" else layer._p_ffn
    assert p == (0.5 if drops.get(family, {}).get(part, True) else 0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_half_dropped_hidden_states_are_off_as_much_as_the_reference_is(saved, family):
    every = (
        {"dropout": 0.5, "attention_dropout": 0.5}
        if family == "distilbert"
        else {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    )
    folder, model = saved(family, "tokcls", **every)
    ours = AutoModelForTokenClassification.from_pretrained(folder)
    inputs, _, _ = batch_for(model.config, "tokcls")
    torch.manual_seed(0)
    with torch.no_grad():
        spreads = []
        for each in (lambda: ours(**inputs), lambda: model(**inputs).logits):
            (ours if not spreads else model).train()
            drawn = torch.stack([each() for _ in range(150)])
            spreads.append(drawn.std(0).mean())
    assert spreads[0].item() == pytest.approx(spreads[1].item(), rel=0.08)


@pytest.mark.parametrize(
    "labels", [torch.tensor([0, 3, 1]), torch.tensor([0, -7, 1])], ids=["too large", "negative"]
)
def test_a_label_outside_the_classes_is_named(saved, labels):
    from flodl_hf import HeadError

    folder, model = saved("bert", "seqcls")
    ours = AutoModelForSequenceClassification.from_pretrained(folder)
    inputs, _, _ = batch_for(model.config, "seqcls")
    with pytest.raises(HeadError, match=f"label {labels[1].item()} at position 1"):
        ours.compute_loss(inputs, labels)


def test_labels_of_another_shape_are_refused_with_the_one_that_is_needed(saved):
    from flodl_hf import HeadError

    folder, model = saved("bert", "tokcls")
    ours = AutoModelForTokenClassification.from_pretrained(folder)
    inputs, _, _ = batch_for(model.config, "tokcls")
    with pytest.raises(HeadError, match=r"\[B, S\]"):
        ours.compute_loss(inputs, torch.zeros(3, 11, dtype=torch.long))


def test_float16_parameters_in_training_are_said_once(saved, caplog):
    folder, model = saved("bert", "seqcls")
    inputs, labels, _ = batch_for(model.config, "seqcls")
    load = AutoModelForSequenceClassification.from_pretrained
    ours = load(folder, dtype=torch.float16)
    with torch.no_grad():
        ours(**inputs)
    for dtype in (torch.bfloat16, torch.float32):
        load(folder, dtype=dtype).train().compute_loss(inputs, labels)
    assert "float16 parameters" not in caplog.text
    for _ in range(2):
        ours.train().compute_loss(inputs, labels)
    assert caplog.text.count("trains with float16 parameters") == 1
    assert "dtype=torch.float32" in caplog.text


def test_positions_of_sines_are_those_of_the_reference_and_stay():
    from transformers import DistilBertConfig as Reference
    from transformers import DistilBertModel as ReferenceModel

    from flodl_hf import DistilBertConfig, DistilBertForMaskedLM, DistilBertModel

    sizes = {"vocab_size": 9, "dim": 7, "n_layers": 1, "n_heads": 1, "hidden_dim": 3}
    sizes |= {"max_position_embeddings": 40, "sinusoidal_pos_embds": True}
    expected = ReferenceModel(Reference(**sizes)).embeddings.position_embeddings.weight
    config = DistilBertConfig(**sizes)
    head = DistilBertForMaskedLM.build(config).graph.get_submodule("distilbert")
    for backbone in (head, DistilBertModel.build(config)):
        table = backbone.get_parameter("embeddings.position_embeddings.weight")
        assert torch.equal(table, expected)
        assert not table.requires_grad


def test_the_tie_holds_through_copies_casts_and_steps():
    import copy

    from flodl_hf import BertConfig

    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=20,
    )
    head = BertForMaskedLM.build(config).eval()
    twin = copy.deepcopy(head).double()
    ids = torch.randint(0, 40, (2, 5))
    before = head(ids)
    table = twin.get_parameter("bert.embeddings.word_embeddings.weight")
    names = [name for name, _ in twin.named_parameters()]
    assert len(names) == len(set(names))
    assert not any(name.endswith("decoder.weight") for name in names)
    with torch.no_grad():
        table.mul_(2)
    assert not torch.allclose(twin(ids).float(), before)
    assert torch.equal(head(ids), before)
    twin(ids).sum().backward()
    decoder = twin.graph.get_submodule("cls.predictions.decoder")
    assert decoder._embeddings[0].word_embeddings.weight is table
    assert isinstance(decoder, nn.Module)
    assert table.grad is not None
