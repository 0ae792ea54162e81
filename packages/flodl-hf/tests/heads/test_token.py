import pytest
import torch

from flodl_hf import AutoModelForTokenClassification

TEXTS = ["the quick brown fox", "Paris", "the Cat sat in London ."]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "deberta-v2"])
def test_every_token_gets_the_best_class_of_the_reference(talking, family):
    folder, model = talking(family, "tokcls")
    head = AutoModelForTokenClassification.from_pretrained(folder)
    enc = head.tokenizer.encode(TEXTS)
    with torch.no_grad():
        best = model(enc.input_ids, attention_mask=enc.attention_mask).logits.softmax(-1).max(-1)
    tagged = head.tag(enc)
    assert [len(row) for row in tagged] == [enc.input_ids.shape[1]] * 3
    for row, tokens in enumerate(tagged):
        for column, token in enumerate(tokens):
            assert token.label == f"LABEL_{best.indices[row, column]}"
            assert token.score == pytest.approx(best.values[row, column].item(), abs=1e-5)
            assert token.attends == bool(enc.attention_mask[row, column])
            assert token.token == head.tokenizer.id_to_token(int(enc.input_ids[row, column]))


def test_offsets_cut_the_token_out_of_the_text(talking):
    folder, _ = talking("bert", "tokcls")
    head = AutoModelForTokenClassification.from_pretrained(folder)
    text = TEXTS[2]
    tokens = head.predict([text])[0]
    assert [text[token.start : token.end] for token in tokens if token.start < token.end] == [
        "the",
        "Cat",
        "sat",
        "in",
        "London",
        ".",
    ]
    assert tokens[0].token == "[CLS]"
    assert tokens[0].start == tokens[0].end == 0


def test_predictions_keep_the_order_of_the_texts(talking):
    folder, _ = talking("bert", "tokcls")
    head = AutoModelForTokenClassification.from_pretrained(folder)
    together = head.predict(TEXTS, batch_size=1)
    for text, tokens in zip(TEXTS, together, strict=True):
        assert tokens == head.predict([text])[0]
