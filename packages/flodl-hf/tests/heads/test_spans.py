"""Labels of tokens joined into spans, beside the reference's pipeline."""

import json

import pytest
import torch

from flodl_hf import AutoModelForTokenClassification, EntitySpan, HeadError
from flodl_hf.heads.spans import spans_of

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TEXTS = [
    "the quick brown foxs jumpsed over lazy dog in paris, london!",
    "what cats mats",
    "one",
    "where is the city of lights and rain ?",
    "",
]
WAYS = ("simple", "first", "average", "max")


def scores_of(*rows):
    """Probabilities of the five classes, a row of ten parts for each token."""
    return torch.tensor(rows, dtype=torch.float32) / 10


@pytest.fixture
def labelled(talking):
    """A tiny model with labels of names, loaded by both."""
    folder, model = talking("bert", "tokcls", labels=5, seed=3)
    names = dict(enumerate(LABELS))
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {str(number): name for number, name in names.items()}
    config["label2id"] = {name: number for number, name in names.items()}
    (folder / "config.json").write_text(json.dumps(config))
    model.config.id2label = names
    return AutoModelForTokenClassification.from_pretrained(folder), model


@pytest.mark.parametrize("how", WAYS)
def test_spans_are_those_of_the_reference(labelled, how):
    from transformers import PreTrainedTokenizerFast, TokenClassificationPipeline

    head, model = labelled
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=head.tokenizer.inner, unk_token="[UNK]", pad_token="[PAD]"
    )
    pipeline = TokenClassificationPipeline(
        model=model, tokenizer=tokenizer, aggregation_strategy=how
    )
    found = head.predict(TEXTS, aggregate=how)
    wanted = [pipeline(text) if text else [] for text in TEXTS]
    assert [[(span.label, span.start, span.end) for span in row] for row in found] == [
        [(span["entity_group"], span["start"], span["end"]) for span in row] for row in wanted
    ]
    assert sum(map(len, found)) > 3
    for row, expected in zip(found, wanted, strict=True):
        for span, other in zip(row, expected, strict=True):
            assert span.score == pytest.approx(other["score"], abs=1e-5)


def test_a_span_is_cut_out_of_the_text_as_it_was_written(labelled):
    head, _ = labelled
    text = "PARIS is the CITY of Lights"
    for span in head.predict([text], aggregate="simple")[0]:
        assert span.text == text[span.start : span.end]


@pytest.mark.parametrize(
    ("how", "label", "score"),
    [("first", "PER", 0.6), ("average", "LOC", 0.5), ("max", "LOC", 0.9)],
)
def test_a_word_has_one_class(how, label, score):
    scores = scores_of([0, 6, 0, 1, 3], [1, 0, 0, 9, 0], [1, 2, 2, 5, 0])
    (span,) = spans_of("unhappily", scores, [0, 0, 0], [(0, 2), (2, 7), (7, 9)], LABELS, how)
    assert span == EntitySpan(
        text="unhappily", label=label, score=pytest.approx(score), start=0, end=9
    )


def test_a_label_that_begins_anew_begins_another_span():
    scores = scores_of([0, 9, 1, 0, 0], [0, 0, 8, 2, 0], [0, 10, 0, 0, 0], [9, 1, 0, 0, 0])
    found = spans_of(
        "Ada Byron Bob ran",
        scores,
        [0, 1, 2, 3],
        [(0, 3), (4, 9), (10, 13), (14, 17)],
        LABELS,
        "simple",
    )
    assert [(span.text, span.label) for span in found] == [("Ada Byron", "PER"), ("Bob", "PER")]
    assert found[0].score == pytest.approx(0.85)


def test_an_unknown_way_to_join_is_refused(labelled):
    with pytest.raises(HeadError, match="aggregate='mean': expected one of 'none', 'simple'"):
        labelled[0].predict(["one"], aggregate="mean")
