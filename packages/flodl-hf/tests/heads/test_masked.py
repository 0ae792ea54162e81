import pytest
import torch

from flodl_hf import AutoModelForMaskedLM, MaskTokenError

FAMILIES = ("bert", "roberta", "distilbert", "xlm-roberta", "albert", "deberta-v2")


@pytest.mark.parametrize("family", FAMILIES)
def test_candidates_are_the_most_likely_tokens_of_the_reference(talking, family):
    folder, model = talking(family, "mlm")
    head = AutoModelForMaskedLM.from_pretrained(folder)
    mask = "<mask>" if "roberta" in family else "[MASK]"
    assert head.mask_token == mask
    text = f"paris is the {mask} of lights"
    found = head.fill_mask(text, top_k=4)
    enc = head.tokenizer.encode([text])
    place = (enc.input_ids[0] == head.tokenizer.token_to_id(mask)).nonzero()[0, 0]
    with torch.no_grad():
        scores = model(enc.input_ids).logits[0, place].softmax(-1).topk(4)
    assert [score for _, score in found] == pytest.approx(scores.values.tolist(), abs=1e-5)
    assert [word for word, _ in found] == [
        head.tokenizer.decode([index], skip_special_tokens=False).strip()
        if index <= head.tokenizer.highest_id
        else ""
        for index in scores.indices.tolist()
    ]


def test_every_mask_of_every_text_gets_candidates(talking):
    folder, _ = talking("bert", "mlm")
    head = AutoModelForMaskedLM.from_pretrained(folder)
    texts = ["[MASK] is in [MASK] .", "no mask", "the [MASK]"]
    found = head.fill_masks(texts, top_k=2, batch_size=2)
    assert [len(row) for row in found] == [2, 0, 1]
    assert found[2][0] == [
        (word, pytest.approx(score, abs=1e-5)) for word, score in head.fill_mask(texts[2], 2)
    ]


@pytest.mark.parametrize(("text", "count"), [("no mask", 0), ("[MASK] [MASK]", 2)])
def test_fill_mask_takes_exactly_one(talking, text, count):
    folder, _ = talking("bert", "mlm")
    head = AutoModelForMaskedLM.from_pretrained(folder)
    with pytest.raises(MaskTokenError, match=f"{count} mask tokens"):
        head.fill_mask(text)


@pytest.mark.parametrize("top_k", [0, 100])
def test_the_number_of_candidates_must_be_possible(talking, top_k):
    folder, _ = talking("bert", "mlm")
    head = AutoModelForMaskedLM.from_pretrained(folder)
    with pytest.raises(ValueError, match="expected 1 to 99"):
        head.fill_mask("[MASK]", top_k)


def test_a_head_that_was_initialized_here_warns(talking, caplog):
    folder, _ = talking("bert", "base")
    head = AutoModelForMaskedLM.from_pretrained(folder, new_head=True)
    head.fill_mask("[MASK]")
    head.fill_mask("[MASK]")
    assert caplog.text.count("initialized here") == 1


def test_the_file_decides_which_head_deberta_has(talking):
    import json

    folder, model = talking("deberta-v2", "mlm", legacy=False)
    config = json.loads((folder / "config.json").read_text())
    del config["legacy"]
    (folder / "config.json").write_text(json.dumps(config))
    head = AutoModelForMaskedLM.from_pretrained(folder)
    assert head.config.legacy is False
    ids = torch.arange(5, 12)[None]
    with torch.no_grad():
        assert torch.allclose(head(ids), model(ids).logits, atol=1e-4)
