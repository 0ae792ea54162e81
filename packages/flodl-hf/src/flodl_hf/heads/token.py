"""Token classification: a label for each token, such as the parts of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import torch
from torch import Tensor

from flodl_hf.heads.base import Encoded, Head
from flodl_hf.heads.batches import in_order, single_texts, text_batches
from flodl_hf.heads.graphs import Shape
from flodl_hf.heads.losses import Reduction, reduced, token_loss
from flodl_hf.heads.spans import Aggregation, EntitySpan, check_aggregation, spans_of
from flodl_hf.tokenizer.encoded import EncodedBatch


@dataclass(frozen=True, slots=True)
class TokenPrediction:
    """What a model says about one token.

    Attributes:
        token: Its text in the vocabulary.
        label: The most likely class.
        score: Probability of that class.
        attends: Whether it is a token, not padding.
        start: First character in the text; ``start == end`` for specials and padding.
        end: The character after the last.
    """

    token: str
    label: str
    score: float
    attends: bool
    start: int
    end: int


class TokenHead(Head):
    """A classifier of tokens."""

    shape: ClassVar[Shape] = "token"

    @overload
    def predict(
        self, texts: Sequence[str], *, batch_size: int = 32, aggregate: Literal["none"] = "none"
    ) -> list[list[TokenPrediction]]: ...
    @overload
    def predict(
        self, texts: Sequence[str], *, batch_size: int = 32, aggregate: Aggregation
    ) -> list[list[EntitySpan]]: ...
    def predict(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 32,
        aggregate: Literal["none"] | Aggregation = "none",
    ) -> list[list[TokenPrediction]] | list[list[EntitySpan]]:
        """Return a prediction for each token of each text, specials and padding included.

        Args:
            texts: What to label.
            batch_size: Texts in one call of the model.
            aggregate: Other than ``"none"``: return the labelled parts of each text instead.
                ``"simple"`` joins neighbouring tokens of one class; ``"first"``, ``"average"`` and
                ``"max"`` first give each word one class, that of its first token, of the mean over
                its tokens, or of the surest token.

        Raises:
            TypeError: A single text.
            HeadError: There is no tokenizer, or no such way to join tokens.
            TokenizerError: A text cannot be encoded, or is too long.
        """
        rows = single_texts(texts, "predict")
        check_aggregation(aggregate)
        tokenizer = self.need_tokenizer("predict")
        found: dict[int, Any] = {}
        for enc in text_batches(tokenizer, rows, size=batch_size, limit=self.limit):
            tagged = self.tag(enc) if aggregate == "none" else self._spans(enc, aggregate)
            found |= dict(zip(enc.sources, tagged, strict=True))
        return in_order(found)

    def tag(self, enc: EncodedBatch) -> list[list[TokenPrediction]]:
        """Return a prediction for each token of an encoded batch.

        Raises:
            HeadError: There is no tokenizer, which knows the tokens' texts.
        """
        tokenizer = self.need_tokenizer("tag")
        scores, classes = self._probabilities(enc).max(-1)
        rows = zip(
            enc.input_ids.tolist(),
            classes.tolist(),
            scores.tolist(),
            enc.attention_mask.tolist(),
            enc.offsets.tolist(),
            strict=True,
        )
        return [
            [
                TokenPrediction(
                    token=tokenizer.id_to_token(index),
                    label=self.labels[kind],
                    score=score,
                    attends=bool(real),
                    start=start,
                    end=end,
                )
                for index, kind, score, real, (start, end) in zip(*row, strict=True)
            ]
            for row in rows
        ]

    def _spans(self, enc: EncodedBatch, how: Aggregation) -> list[list[EntitySpan]]:
        rows = zip(
            enc.texts,
            self._probabilities(enc).cpu(),
            enc.word_ids.tolist(),
            enc.offsets.tolist(),
            strict=True,
        )
        return [
            spans_of(texts[0], scores, words, offsets, self.labels, how)
            for texts, scores, words, offsets in rows
        ]

    def _probabilities(self, enc: EncodedBatch) -> Tensor:
        """Return the probability of each class for each token, ``[B, S, L]``."""
        with self.predicting():
            return torch.softmax(self.forward_encoded(self.moved(enc)).float(), -1)

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
        """Return the cross entropy over tokens whose label is not -100.

        Args:
            enc: An encoded batch, on the model's device like the labels.
            labels: Classes ``[B, S]``; ``align_labels`` makes them of labels of words.
            reduction: ``"mean"``, or ``"sum"`` for the sum and the number of tokens.

        Raises:
            HeadError: The labels do not fit.
        """
        return reduced(token_loss(self.forward_encoded(enc), labels), reduction)
