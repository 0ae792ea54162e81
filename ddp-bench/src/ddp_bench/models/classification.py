"""The step and the evaluation that all classifiers share."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from flodl import Batch


def train_step(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the cross-entropy of the model's logits for the images of a batch."""
    return functional.cross_entropy(model(batch["image"]), batch["label"])


def accuracy(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the share of images whose largest logit is the label's."""
    predicted: torch.Tensor = model(batch["image"]).argmax(dim=1)
    return predicted.eq(batch["label"]).double().mean()
