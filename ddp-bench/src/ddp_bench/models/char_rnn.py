"""A two-layer LSTM over characters of Shakespeare: 946,625 parameters for 65 characters.

After Karpathy 2015 (char-rnn): RMSprop with alpha 0.95 and value clipping at 5, a constant rate
for 10 epochs and then 0.97 of it per epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from ddp_bench.definition import DataFacts, DataSpec, ModelDef, Setup
from flodl import Batch, FlowBuilder

_EMBEDDING, _HIDDEN = 128, 256
_FLAT_EPOCHS, _DECAY = 10, 0.97


@dataclass(frozen=True, slots=True)
class FlatThenDecay:
    """A constant learning rate for ten epochs, then a factor of 0.97 with every epoch."""

    base_lr: float
    steps_per_epoch: int

    def lr(self, step: int) -> float:
        """Return the learning rate of ``step``, counted from 0."""
        decays = max(0, step // self.steps_per_epoch - _FLAT_EPOCHS + 1)
        return float(self.base_lr * _DECAY**decays)


def build(device: torch.device, facts: DataFacts) -> nn.Module:
    """Return the graph: embedding, two LSTM layers, dropout, one logit per character.

    Raises:
        ValueError: The data set has no vocabulary.
    """
    if facts.vocabulary is None:
        raise ValueError(f"char-rnn needs text; the data set {facts.name!r} has no vocabulary")
    return (
        FlowBuilder(nn.Embedding(facts.vocabulary, _EMBEDDING))
        .through(nn.LSTM(_EMBEDDING, _HIDDEN, num_layers=2, batch_first=True), out=0)
        .tag("hidden")
        .through(nn.Dropout(0.2))
        .through(nn.Linear(_HIDDEN, facts.vocabulary))
        .tag("logits")
        .label("char_rnn")
        .build()
        .to(device)
    )


def next_character_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the cross-entropy of the next character, in nats, over all positions."""
    logits = model(batch["input"])  # [batch, position, character]
    return functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten())


CHAR_RNN = ModelDef(
    name="char-rnn",
    description="character LSTM on Shakespeare",
    build=build,
    train_step=next_character_loss,
    eval_step=next_character_loss,
    metric="cross_entropy",
    higher_is_better=False,
    optimizer=partial(torch.optim.RMSprop, alpha=0.95),
    lr=2e-3,
    schedule=FlatThenDecay,
    clip_value=5.0,
    defaults=Setup(data=DataSpec(name="shakespeare", seq_len=128), epochs=50),
    mini=Setup(
        data=DataSpec(name="shakespeare", seq_len=64, characters=65_536),
        epochs=2,
        batch_size=16,
        floor=2.2,
    ),
)
