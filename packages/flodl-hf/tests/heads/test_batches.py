import pytest

from flodl_hf import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    SequenceTooLongError,
    TokenizerError,
)
from flodl_hf.heads.batches import text_batches

LONG = "the quick brown fox jumps over the lazy dog . " * 20


def calls(talking):
    """Return how each head takes texts, as a function of one text for each row."""
    seqcls = AutoModelForSequenceClassification.from_pretrained(talking("bert", "seqcls")[0])
    tokcls = AutoModelForTokenClassification.from_pretrained(talking("bert", "tokcls")[0])
    mlm = AutoModelForMaskedLM.from_pretrained(talking("bert", "mlm")[0])
    qa = AutoModelForQuestionAnswering.from_pretrained(talking("bert", "qa")[0])
    return {
        "seqcls": lambda texts: seqcls.predict(texts, batch_size=2),
        "tokcls": lambda texts: tokcls.predict(texts, batch_size=2),
        "mlm": lambda texts: mlm.fill_masks(texts, batch_size=2),
        "qa": lambda texts: qa.answer_batch([("who", text) for text in texts], batch_size=2),
    }


def test_errors_name_the_place_in_the_list_that_was_given(talking):
    for name, call in calls(talking).items():
        with pytest.raises(SequenceTooLongError) as caught:
            call(["a fox", LONG, "the cat", "a"])
        assert caught.value.row == 1, name
        assert caught.value.limit == 64
        with pytest.raises(TokenizerError, match="text 2 holds a lone surrogate"):
            call(["the cat sat", "a", "\ud800", "a fox"])
        with pytest.raises(TypeError, match="item 1 is" if name != "qa" else "item 1"):
            call(["a", None])
        assert call([]) == []


def test_single_texts_and_wrong_pairs_are_refused(talking):
    qa = AutoModelForQuestionAnswering.from_pretrained(talking("bert", "qa")[0])
    seqcls = AutoModelForSequenceClassification.from_pretrained(talking("bert", "seqcls")[0])
    for call in (qa.answer_batch, seqcls.predict):
        with pytest.raises(TypeError, match="expected a list"):
            call("a fox")
        with pytest.raises(TypeError, match="item 0 is .* expected"):
            call([("a", "b", "c")])
    with pytest.raises(TypeError, match="expected two texts"):
        qa.answer_batch(["ab"])
    with pytest.raises(ValueError, match="activation='softmin': expected one of softmax"):
        seqcls.predict(["a"], activation="softmin")
    with pytest.raises(ValueError, match="batch_size=0"):
        seqcls.predict(["a"], batch_size=0)


def test_texts_and_pairs_may_be_mixed(talking):
    head = AutoModelForSequenceClassification.from_pretrained(talking("bert", "seqcls")[0])
    mixed = head.predict(["a fox", ("who", "the cat sat"), "good"])
    assert dict(mixed[1]) == pytest.approx(
        dict(head.predict([("who", "the cat sat")])[0]), abs=1e-6
    )
    assert dict(mixed[2]) == pytest.approx(dict(head.predict(["good"])[0]), abs=1e-6)


def test_alike_lengths_come_together(talking):
    head = AutoModelForSequenceClassification.from_pretrained(talking("bert", "seqcls")[0])
    texts = [(" ".join(["a"] * count),) for count in (9, 1, 8, 2)]
    batches = list(text_batches(head.tokenizer, texts, size=2, limit=64))
    assert [enc.sources for enc in batches] == [(1, 3), (2, 0)]
    assert [enc.lengths.tolist() for enc in batches] == [[3, 4], [10, 11]]


def test_a_model_without_a_limit_reads_long_contexts_in_one_piece(talking):
    folder, _ = talking("deberta-v2", "qa")
    head = AutoModelForQuestionAnswering.from_pretrained(folder)
    assert head.limit is None
    assert head.answer("who ?", LONG, stride=8) == head.answer("who ?", LONG)
