"""Sequence classification: one set of scores for a whole text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, get_args, overload

import torch
from torch import Tensor

from flodl.data.batch import Batch
from flodl_hf.heads.base import Encoded, Head
from flodl_hf.heads.batches import in_order, text_batches, texts_or_pairs
from flodl_hf.heads.graphs import Shape
from flodl_hf.heads.losses import Reduction, reduced, sequence_loss

Activation = Literal["softmax", "sigmoid", "none"]
Scores = list[tuple[str, float]]


class SequenceHead(Head):
    """A classifier of texts, or of pairs of texts."""

    shape: ClassVar[Shape] = "sequence"

    def predict(
        self,
        texts: Sequence[str] | Sequence[tuple[str, str]],
        *,
        batch_size: int = 32,
        activation: Activation | None = None,
    ) -> list[Scores]:
        """Return labels with scores for each text, best first.

        Args:
            texts: Texts, or pairs of texts.
            batch_size: Texts in one call of the model.
            activation: See ``classify``.

        Raises:
            TypeError: A single text, or something that is no text and no pair.
            HeadError: There is no tokenizer.
            TokenizerError: A text cannot be encoded, or is too long.
        """
        rows = texts_or_pairs(texts, "predict")
        tokenizer = self.need_tokenizer("predict")
        found: dict[int, Scores] = {}
        for enc in text_batches(tokenizer, rows, size=batch_size, limit=self.limit):
            found |= dict(zip(enc.sources, self.classify(enc, activation=activation), strict=True))
        return in_order(found)

    def classify(self, enc: Encoded, *, activation: Activation | None = None) -> list[Scores]:
        """Return labels with scores for each row, best first.

        Args:
            enc: An encoded batch.
            activation: ``"softmax"``, ``"sigmoid"`` or ``"none"``. When left out: sigmoid for
                several labels at once and for a single one, none for a regression, else softmax.

        Raises:
            ValueError: There is no such activation.
        """
        if activation not in {None, *get_args(Activation)}:
            raise ValueError(
                f"activation={activation!r}: expected one of {', '.join(get_args(Activation))}"
            )
        with self.predicting():
            logits = self.forward_encoded(self.moved(enc)).float()
            chosen = activation or self._usual_activation()
            if chosen == "softmax":
                logits = torch.softmax(logits, -1)
            elif chosen == "sigmoid":
                logits = torch.sigmoid(logits)
        rows = logits.cpu()
        best = rows.argsort(dim=-1, descending=True, stable=True)
        return [
            [(self.labels[index], float(row[index])) for index in order.tolist()]
            for row, order in zip(rows, best, strict=True)
        ]

    def inputs_of(self, enc: Encoded) -> dict[str, Tensor | None]:
        """Return the keyword arguments of a call; pads on the left go to the right.

        The scores are made of the first token, which must not be a pad.
        """
        inputs = super().inputs_of(enc)
        mask = inputs["attention_mask"]
        if isinstance(enc, Batch) and enc.static.get("pads_left") and mask is not None:
            at = torch.arange(mask.shape[1], device=mask.device)
            at = (at + (mask == 0).sum(1, keepdim=True)) % mask.shape[1]
            inputs = {k: None if v is None else v.gather(1, at) for k, v in inputs.items()}
        return inputs

    def _usual_activation(self) -> Activation:
        kind = self.config.problem_type
        if kind == "regression":
            return "none"
        several = kind == "multi_label_classification" or len(self.labels) == 1
        return "sigmoid" if several else "softmax"

    @overload
    def compute_loss(
        self, enc: Encoded, labels: Tensor, *, reduction: Literal["mean"] = "mean"
    ) -> Tensor: ...
    @overload
    def compute_loss(
        self, enc: Encoded, labels: Tensor, *, reduction: Literal["sum"]
    ) -> tuple[Tensor, Tensor]: ...
    def compute_loss(
        self, enc: Encoded, labels: Tensor, *, reduction: Reduction = "mean"
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the loss of a batch; see ``sequence_loss`` for what labels may be.

        Args:
            enc: An encoded batch, on the model's device like the labels.
            labels: Classes ``[B]``, or numbers ``[B, L]``.
            reduction: ``"mean"``, or ``"sum"`` for the sum and what to divide it by.

        Raises:
            HeadError: The labels do not fit.
        """
        logits = self.forward_encoded(enc)
        loss = sequence_loss(
            logits,
            labels,
            problem_type=self.config.problem_type,
            soft_by_default=self.spec.sequence_head == "context",
        )
        return reduced(loss, reduction)
