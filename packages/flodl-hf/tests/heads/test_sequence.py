import pytest
import torch

from flodl_hf import (
    AutoModelForSequenceClassification,
    HeadError,
    HfTokenizer,
    SequenceTooLongError,
    TokenizerMismatchError,
)

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")
TEXTS = ["the quick brown fox", "good film", "", "the cat sat on the mat " * 5, "bad film . . ."]


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_the_softmax_of_the_reference_in_the_order_of_the_texts(talking, family):
    folder, model = talking(family, "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    found = head.predict(TEXTS, batch_size=2)
    for text, scores in zip(TEXTS, found, strict=True):
        enc = head.tokenizer.encode([text])
        with torch.no_grad():
            logits = model(enc.input_ids, attention_mask=enc.attention_mask).logits[0]
        wanted = {f"LABEL_{i}": p.item() for i, p in enumerate(logits.softmax(-1))}
        assert dict(scores) == pytest.approx(wanted, abs=1e-5)
        assert scores == sorted(scores, key=lambda item: -item[1])


def test_pairs_carry_token_types(talking):
    folder, model = talking("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    pairs = [("the fox", "who is in paris ?"), ("a", "b")]
    found = head.predict(pairs)
    enc = head.tokenizer.encode_pairs(pairs)
    assert enc.token_type_ids.max() == 1
    with torch.no_grad():
        logits = model(
            enc.input_ids, attention_mask=enc.attention_mask, token_type_ids=enc.token_type_ids
        ).logits
    for row, scores in enumerate(found):
        best = logits[row].softmax(-1)
        assert scores[0][1] == pytest.approx(best.max().item(), abs=1e-5)


def test_token_types_are_left_out_where_there_is_one_row_of_them(talking):
    folder, _ = talking("roberta", "seqcls", type_vocab_size=1)
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    enc = head.tokenizer.encode_pairs([("a", "the fox")])
    assert "token_type_ids" not in enc.inputs(head)
    head.predict([("a", "the fox")])


@pytest.mark.parametrize(
    ("problem", "labels", "kind"),
    [
        (None, 3, "softmax"),
        (None, 1, "sigmoid"),
        ("multi_label_classification", 3, "sigmoid"),
        ("regression", 1, "none"),
        ("regression", 3, "none"),
    ],
)
def test_the_kind_of_problem_says_what_scores_are(talking, problem, labels, kind):
    folder, _ = talking("bert", "seqcls", labels=labels)
    head = AutoModelForSequenceClassification.from_pretrained(folder, problem_type=problem)
    enc = head.tokenizer.encode(TEXTS[:2])
    with torch.no_grad():
        logits = head.forward_encoded(enc)
    wanted = {"softmax": logits.softmax(-1), "sigmoid": logits.sigmoid(), "none": logits}[kind]
    for row, scores in enumerate(head.predict(TEXTS[:2])):
        by_name = [dict(scores)[name] for name in head.labels]
        assert by_name == pytest.approx(wanted[row].tolist(), abs=1e-6)
    forced = head.classify(enc, activation="sigmoid")
    assert dict(forced[0])["LABEL_0"] == pytest.approx(logits[0, 0].sigmoid().item())


@pytest.mark.parametrize("training", [True, False])
def test_predicting_leaves_the_mode_and_the_gradients_alone(talking, training):
    folder, _ = talking("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder).train(training)
    first = head.predict(["the fox"])
    assert head.predict(["the fox"]) == first
    assert all(module.training is training for module in head.modules())
    enc = head.tokenizer.encode(["the fox"])
    assert head.forward_encoded(enc).requires_grad


def test_a_single_text_is_refused(talking):
    folder, _ = talking("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    with pytest.raises(TypeError, match="expected a list"):
        head.predict("the fox")


def test_no_tokenizer_is_said_with_what_to_do(saved, small_tokenizer):
    folder, _ = saved("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    with pytest.raises(HeadError, match="with_tokenizer"):
        head.predict(["the fox"])
    head.with_tokenizer(HfTokenizer.from_inner(small_tokenizer()))
    assert len(head.predict(["the fox"])) == 1


@pytest.mark.parametrize(
    ("family", "limit"), [("bert", 64), ("roberta", 62), ("albert", 64), ("deberta-v2", None)]
)
def test_a_text_that_is_too_long_is_named_before_the_forward(talking, family, limit):
    folder, _ = talking(family, "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    assert head.limit == limit
    texts = ["a fox", "the " * 70]
    if limit is None:
        assert len(head.predict(texts)) == 2
        return
    with pytest.raises(SequenceTooLongError) as caught:
        head.classify(head.tokenizer.encode(texts))
    assert (caught.value.length, caught.value.limit, caught.value.row) == (72, limit, 1)


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(saved, small_tokenizer):
    folder, _ = saved("bert", "seqcls", vocab_size=30)
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    with pytest.raises(TokenizerMismatchError, match="ids up to"):
        head.with_tokenizer(HfTokenizer.from_inner(small_tokenizer()))


def test_a_tokenizer_that_pads_otherwise_is_refused_where_positions_depend_on_it(
    saved, small_tokenizer
):
    folder, _ = saved("roberta", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    with pytest.raises(TokenizerMismatchError, match="pads with id 0"):
        head.with_tokenizer(HfTokenizer.from_inner(small_tokenizer("bert")))


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_the_left_changes_nothing(talking, family):
    folder, _ = talking(family, "seqcls")
    right = AutoModelForSequenceClassification.from_pretrained(folder)
    inner = right.tokenizer.inner.from_str(right.tokenizer.inner.to_str())
    pad = right.tokenizer.special.pad
    inner.enable_padding(direction="left", pad_token=pad, pad_id=right.tokenizer.pad_id)
    left = HfTokenizer.from_inner(inner)
    assert left.pads_left
    head = AutoModelForSequenceClassification.from_pretrained(folder, tokenizer=left)
    enc = left.encode(["the fox", "the quick brown fox jumps over"])
    wanted = right.classify(right.tokenizer.encode(["the fox", "the quick brown fox jumps over"]))
    for found, expected in zip(head.classify(enc), wanted, strict=True):
        assert dict(found) == pytest.approx(dict(expected), abs=1e-5)


def test_batches_of_other_kinds_are_taken(talking):
    from flodl import Batch

    folder, _ = talking("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder)
    enc = head.tokenizer.encode(["the fox", "the quick brown fox"])
    plain = {name: enc[name] for name in ("input_ids", "attention_mask")}
    batch = Batch(list(plain.values()), list(plain))
    assert torch.equal(head.forward_encoded(plain), head.forward_encoded(batch))
    assert torch.allclose(head.forward_encoded(plain), head.forward_encoded(enc), atol=1e-6)
    assert head.classify(plain) == head.classify(batch)


def test_padding_without_a_mask_is_said_once(saved, caplog):
    folder, _ = saved("bert", "seqcls")
    head = AutoModelForSequenceClassification.from_pretrained(folder, tokenizer=None)
    ids = torch.tensor([[5, 6, 0]])
    head(torch.tensor([[5, 6, 7]]))
    head(ids, torch.tensor([[1, 1, 0]]))
    assert "no attention_mask" not in caplog.text
    head(ids)
    head(ids)
    assert caplog.text.count("no attention_mask") == 1
