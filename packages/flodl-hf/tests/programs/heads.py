"""A user's script: trains one head on ranks or on a GPU, and prints its score as JSON.

``python heads.py FOLDER TASK RANKS``; with 0 ranks on one GPU, every step as one CUDA graph.
"""

import json
import sys
from functools import partial

import torch

from flodl import ElCheConfig, Trainer
from flodl.optim import AdamW
from flodl_hf import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    HfTokenizer,
)
from flodl_hf.data import MlmDataset, PairDataset, TextDataset, TokenDataset
from flodl_hf.data.datasets import Lengths

torch.set_num_threads(1)
FOLDER, TASK, RANKS = sys.argv[1], sys.argv[2], int(sys.argv[3])
KINDS = {"fox": 0, "dog": 0, "cat": 0, "paris": 1, "london": 1, "city": 1}
FRAMES = ["the quick {} is here", "a {} , a {}", "who is the {} ?", "the lazy {} sat", "{} . {} !"]
TEXTS = [(frame.format(word, word), word) for frame in FRAMES for word in KINDS]
HIDDEN = ["the quick brown fox jumps over the lazy dog", "paris is the city of lights"]
TOKENIZER = HfTokenizer.from_pretrained(FOLDER)
SHORT = Lengths(buckets=(16,))


def asked():
    """Return questions, contexts, and where the answers stand."""
    rows = []
    for animal in ("fox", "dog", "cat"):
        for place in ("paris", "london", "city"):
            context = f"the {animal} sat in {place} ."
            begin = context.index(place)
            rows.append(("who ?", context, (4, 4 + len(animal))))
            rows.append(("where ?", context, (begin, begin + len(place))))
    return rows


def score_texts(head):
    scored = head.predict([text for text, _ in TEXTS])
    right = [s[0][0] == f"LABEL_{KINDS[word]}" for s, (_, word) in zip(scored, TEXTS, strict=True)]
    return sum(right) / len(right)


def score_tokens(head):
    hits = []
    for (text, _), tokens in zip(TEXTS, head.predict([t for t, _ in TEXTS]), strict=True):
        words = [token for token in tokens if token.start < token.end]
        wanted = [f"LABEL_{KINDS.get(word, 2)}" for word in text.split()]
        hits += [token.label == label for token, label in zip(words, wanted, strict=True)]
    return sum(hits) / len(hits)


def score_answers(head):
    answers = head.answer_batch([(question, context) for question, context, _ in asked()])
    right = [
        answer.text == context[slice(*place)]
        for answer, (_, context, place) in zip(answers, asked(), strict=True)
    ]
    return sum(right) / len(right)


def score_words(head):
    return float(head.fill_mask(f"paris is the {head.mask_token} of lights")[0][0] == "city")


def labeled(head, batch):
    return head.compute_loss(batch, batch["labels"])


def spans(head, batch):
    return head.compute_loss(batch, (batch["start_positions"], batch["end_positions"]))


TASKS = {
    "texts": (
        partial(AutoModelForSequenceClassification.from_pretrained, num_labels=2),
        lambda: TextDataset([(t, KINDS[w]) for t, w in TEXTS] * 8, TOKENIZER, lengths=SHORT),
        labeled,
        score_texts,
    ),
    "tokens": (
        partial(AutoModelForTokenClassification.from_pretrained, num_labels=3),
        lambda: TokenDataset(
            [(text, [KINDS.get(word, 2) for word in text.split()]) for text, _ in TEXTS] * 8,
            TOKENIZER,
            lengths=SHORT,
        ),
        labeled,
        score_tokens,
    ),
    "answers": (
        AutoModelForQuestionAnswering.from_pretrained,
        lambda: PairDataset(asked() * 16, TOKENIZER, lengths=SHORT),
        spans,
        score_answers,
    ),
    "words": (
        AutoModelForMaskedLM.from_pretrained,
        lambda: MlmDataset(HIDDEN * 64, TOKENIZER, lengths=SHORT),
        labeled,
        score_words,
    ),
}
LOAD, DATA, LOSS, SCORE = TASKS[TASK]


def build(device):
    return LOAD(FOLDER, device=device, dtype=torch.float32, new_head=True)


trainer = (
    Trainer.builder(build, lambda parameters: AdamW(parameters, lr=2e-3), LOSS)
    .dataset(DATA())
    .batch_size(8)
    .num_epochs(30)
    .max_grad_norm(1.0)
)
if RANKS:
    trainer = trainer.ranks(RANKS).elche(ElCheConfig.cpu_cadence())
else:
    trainer = trainer.devices(["cuda:0"]).capture("require")
handle = trainer.run()
state = handle.join()
head = build("cpu")
state.load_into(head)
losses = [metrics.avg_loss for metrics in handle.metrics()]
print(json.dumps({"score": SCORE(head), "losses": losses}))
