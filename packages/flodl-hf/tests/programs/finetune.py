"""A user's script: trains a new head on two ranks, saves it, and prints what came of it as JSON."""

import hashlib
import json
import sys
from pathlib import Path

import torch

from flodl import ElCheConfig, Trainer
from flodl.optim import AdamW
from flodl_hf import AutoModelForSequenceClassification, HfTokenizer
from flodl_hf.data import TextDataset
from flodl_hf.data.datasets import Lengths

torch.set_num_threads(1)
FOLDER, OUT = Path(sys.argv[1]), Path(sys.argv[2])
LABELS = {0: "animal", 1: "place"}
WORDS = {"fox": 0, "dog": 0, "cat": 0, "paris": 1, "london": 1, "city": 1}
FRAMES = ["the quick {} is here", "a {} , a {}", "who is the {} ?", "the lazy {} sat", "{} . {} !"]
ROWS = [(frame.format(word, word), label) for frame in FRAMES for word, label in WORDS.items()]
TOKENIZER = HfTokenizer.from_pretrained(FOLDER)


def build(device):
    head = AutoModelForSequenceClassification.from_pretrained(
        FOLDER, device=device, dtype=torch.float32, new_head=True, id2label=LABELS
    )
    digest = hashlib.sha256()
    for name, value in sorted(head.state_dict().items()):
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    with (OUT / "hashes").open("a") as file:  # one line for each process that builds the head
        file.write(digest.hexdigest() + "\n")
    return head


handle = (
    Trainer.builder(
        build,
        lambda parameters: AdamW(parameters, lr=2e-3),
        lambda head, batch: head.compute_loss(batch, batch["labels"]),
    )
    .dataset(TextDataset(ROWS * 8, TOKENIZER, lengths=Lengths(buckets=(16, 32))))
    .batch_size(8)
    .num_epochs(20)
    .max_grad_norm(1.0)
    .ranks(2)
    .elche(ElCheConfig.cpu_cadence())
    .run()
)
state = handle.join()
head = build("cpu")
state.load_into(head)
head.graph.save_checkpoint(OUT / "m.fdl")
scores = head.predict([text for text, _ in ROWS])
right = [found[0][0] == LABELS[label] for found, (_, label) in zip(scores, ROWS, strict=True)]
print(
    json.dumps(
        {
            "right": sum(right) / len(right),
            "losses": [metrics.avg_loss for metrics in handle.metrics()],
            "accounts": [[each.committed, each.total] for each in handle.report.accounting],
            "deaths": len(handle.report.deaths),
            "scores": scores[0],
        }
    )
)
