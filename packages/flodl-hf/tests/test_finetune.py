"""Each head learns a small task to a stated score, through the trainer."""

import pytest
import torch

from flodl import Trainer
from flodl.optim import AdamW
from flodl_hf import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForQuestionAnswering,
    HfTokenizer,
)
from flodl_hf.data import MlmDataset, PairDataset, TextDataset, TokenDataset
from flodl_hf.data.datasets import Lengths
from flodl_hf.heads.groups import no_decay_groups

pytestmark = pytest.mark.slow

ANIMALS, PLACES = ["fox", "dog", "cat"], ["paris", "london", "city"]
FRAMES = ["the quick {} is here", "a {} , a {}", "who is the {} ?", "the lazy {} sat", "{} . {} !"]
LENGTHS = Lengths(buckets=(16, 32))


def sentences():
    return [(frame.format(word, word), word) for frame in FRAMES for word in ANIMALS + PLACES]


def train(factory, dataset, loss, *, epochs=20, lr=2e-3):
    head = None

    def build(device):
        nonlocal head
        head = factory(device)
        return head

    handle = (
        Trainer.builder(build, lambda parameters: AdamW(parameters, lr=lr), loss)
        .dataset(dataset)
        .batch_size(8)
        .num_epochs(epochs)
        .max_grad_norm(1.0)
        .run()
    )
    state = handle.join()
    losses = [metrics.avg_loss for metrics in handle.metrics()]
    state.load_into(head)
    return head, losses


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_a_classifier_of_texts_learns(talking, tmp_path, family):
    folder, _ = talking(family, "base")
    tokenizer = HfTokenizer.from_pretrained(folder)
    rows = [(text, int(word in PLACES)) for text, word in sentences()]
    head, losses = train(
        lambda device: AutoModelForSequenceClassification.from_pretrained(
            folder, device=device, new_head=True, id2label={0: "animal", 1: "place"}
        ),
        TextDataset(rows * 4, tokenizer, lengths=LENGTHS),
        lambda head, batch: head.compute_loss(batch, batch["labels"]),
    )
    right = [
        scores[0][0] == ("place" if label else "animal")
        for (_, label), scores in zip(rows, head.predict([t for t, _ in rows]), strict=True)
    ]
    assert sum(right) / len(right) >= 0.95
    assert losses[-1] < 0.3 * losses[0]
    from flodl_hf.export import export_checkpoint
    from flodl_hf.verify.export import verify_export

    head.graph.save_checkpoint(tmp_path / "m.fdl")
    export_checkpoint(tmp_path / "m.fdl", tmp_path / "out")
    assert verify_export(tmp_path / "out").passed
    again = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", tokenizer=tokenizer
    )
    assert again.labels == ("animal", "place")
    assert again.predict(["the quick fox"]) == head.predict(["the quick fox"])


def test_a_classifier_of_tokens_learns(talking):
    folder, _ = talking("roberta", "base")
    tokenizer = HfTokenizer.from_pretrained(folder)
    kinds = {**dict.fromkeys(ANIMALS, 1), **dict.fromkeys(PLACES, 2)}
    rows = [(text, [kinds.get(word, 0) for word in text.split()]) for text, _ in sentences()]
    head, _ = train(
        lambda device: AutoModelForTokenClassification.from_pretrained(
            folder, device=device, new_head=True, num_labels=3
        ),
        TokenDataset(rows * 5, tokenizer, lengths=LENGTHS),
        lambda head, batch: head.compute_loss(batch, batch["labels"]),
    )
    hits = total = 0
    for (_, labels), tokens in zip(rows, head.predict([t for t, _ in rows]), strict=True):
        words = [token for token in tokens if token.start < token.end]
        pairs = zip(words, labels, strict=True)
        hits += sum(token.label == f"LABEL_{label}" for token, label in pairs)
        total += len(labels)
    assert hits / total >= 0.97


def test_answers_are_learned(small_tokenizer):
    tokenizer = HfTokenizer.from_inner(small_tokenizer())
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    rows = []
    for animal in ANIMALS:
        for place in PLACES:
            context = f"the {animal} sat in {place} ."
            rows.append(("who ?", context, (4, 4 + len(animal))))
            begin = context.index(place)
            rows.append(("where ?", context, (begin, begin + len(place))))
    head, _ = train(
        lambda device: BertForQuestionAnswering.build(config, device),
        PairDataset(rows * 8, tokenizer, lengths=LENGTHS),
        lambda head, batch: head.compute_loss(
            batch, (batch["start_positions"], batch["end_positions"])
        ),
    )
    head.with_tokenizer(tokenizer)
    answers = head.answer_batch([(question, context) for question, context, _ in rows])
    right = [
        answer.text == context[slice(*place)]
        for answer, (_, context, place) in zip(answers, rows, strict=True)
    ]
    assert sum(right) / len(right) >= 0.9


def test_hidden_words_are_learned(talking):
    folder, _ = talking("albert", "base")
    tokenizer = HfTokenizer.from_pretrained(folder)
    texts = ["the quick brown fox jumps over the lazy dog", "paris is the city of lights"] * 16
    head, losses = train(
        lambda device: AutoModelForMaskedLM.from_pretrained(folder, device=device, new_head=True),
        MlmDataset(texts * 3, tokenizer, lengths=LENGTHS),
        lambda head, batch: head.compute_loss(batch, batch["labels"]),
    )
    assert losses[-1] < 0.6 * losses[0]
    assert head.fill_mask("paris is the [MASK] of lights")[0][0] == "city"


def test_decay_spares_biases_and_norms(talking):
    folder, _ = talking("bert", "mlm")
    head = AutoModelForMaskedLM.from_pretrained(folder)
    decayed, plain = no_decay_groups(head, 0.1)
    names = {id(parameter): name for name, parameter in head.named_parameters()}
    assert len(decayed["params"]) + len(plain["params"]) == len(names)
    assert all("LayerNorm" in names[id(p)] or "bias" in names[id(p)] for p in plain["params"])
    assert not any(
        "LayerNorm" in names[id(p)] or names[id(p)].endswith("bias") for p in decayed["params"]
    )
    optimizer = torch.optim.AdamW([decayed, plain], lr=1e-3)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
