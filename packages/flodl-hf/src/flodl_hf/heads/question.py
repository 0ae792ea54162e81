"""Extractive question answering: the span of a context that answers a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, overload

import torch
from torch import Tensor

from flodl_hf.errors import HeadError
from flodl_hf.heads.base import Encoded, Head
from flodl_hf.heads.batches import in_order, text_batches, text_pairs
from flodl_hf.heads.graphs import Shape
from flodl_hf.heads.losses import Reduction, question_loss, reduced
from flodl_hf.tokenizer.encoded import EncodedBatch


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of a context.

    Attributes:
        text: The span, as it stands in the context; empty for no answer.
        start: First token, in the row it was found in.
        end: Last token.
        score: Probability of the start times probability of the end, over the context.
        start_char: First character in the context.
        end_char: The character after the last.
    """

    text: str
    start: int
    end: int
    score: float
    start_char: int
    end_char: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Which spans may answer.

    Attributes:
        max_answer_tokens: Longest span, or ``None`` for any.
        allow_no_answer: Whether the first token may win, which means that there is no answer.
    """

    max_answer_tokens: int | None = None
    allow_no_answer: bool = False

    def __post_init__(self) -> None:
        if self.max_answer_tokens is not None and self.max_answer_tokens < 1:
            raise ValueError(f"max_answer_tokens={self.max_answer_tokens}: expected 1 or more")


class QuestionHead(Head):
    """Finds answers in a context."""

    shape: ClassVar[Shape] = "question"

    def answer(
        self,
        question: str,
        context: str,
        *,
        max_answer_tokens: int | None = None,
        allow_no_answer: bool = False,
        stride: int | None = None,
    ) -> Answer:
        """Return the best span of a context; see ``answer_batch``."""
        return self.answer_batch(
            [(question, context)],
            max_answer_tokens=max_answer_tokens,
            allow_no_answer=allow_no_answer,
            stride=stride,
        )[0]

    def answer_batch(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        max_answer_tokens: int | None = None,
        allow_no_answer: bool = False,
        stride: int | None = None,
        batch_size: int = 32,
    ) -> list[Answer]:
        """Return the best span for each pair of question and context.

        Args:
            pairs: Questions with their contexts.
            max_answer_tokens: Longest span, or ``None`` for any.
            allow_no_answer: Return an empty answer where the first token scores higher.
            stride: Read a context that is too long in windows that overlap by this many tokens.
            batch_size: Windows in one call of the model.

        Raises:
            HeadError: There is no tokenizer, or a context without tokens.
            SequenceTooLongError: A pair is too long, and there is no stride.
        """
        given = text_pairs(pairs, "answer_batch")
        tokenizer = self.need_tokenizer("answer_batch")
        rules = Rules(max_answer_tokens=max_answer_tokens, allow_no_answer=allow_no_answer)
        best: dict[int, tuple[float, Answer]] = {}
        for enc in text_batches(tokenizer, given, size=batch_size, limit=self.limit, stride=stride):
            for source, scored in zip(enc.sources, self._extract(enc, rules), strict=True):
                if source not in best or scored[0] > best[source][0]:
                    best[source] = scored
        return [answer for _, answer in in_order(best)]

    def extract(
        self,
        enc: EncodedBatch,
        *,
        max_answer_tokens: int | None = None,
        allow_no_answer: bool = False,
    ) -> list[Answer]:
        """Return the best span of each row of an encoded batch of pairs.

        Raises:
            HeadError: A row without a token of the context.
        """
        rules = Rules(max_answer_tokens=max_answer_tokens, allow_no_answer=allow_no_answer)
        return [answer for _, answer in self._extract(enc, rules)]

    def _extract(self, enc: EncodedBatch, rules: Rules) -> list[tuple[float, Answer]]:
        with self.predicting():
            logits = self.forward_encoded(self.moved(enc)).float().cpu()
        return [
            _best_span(
                logits[row],
                (enc.sequence_ids[row] == 1).cpu(),
                enc.offsets[row].cpu(),
                enc.texts[row],
                rules,
            )
            for row in range(enc.size)
        ]

    @overload
    def compute_loss(
        self,
        enc: Encoded,
        labels: tuple[Tensor, Tensor],
        *,
        reduction: Literal["mean"] = "mean",
    ) -> Tensor: ...
    @overload
    def compute_loss(
        self, enc: Encoded, labels: tuple[Tensor, Tensor], *, reduction: Literal["sum"]
    ) -> tuple[Tensor, Tensor]: ...
    def compute_loss(
        self, enc: Encoded, labels: tuple[Tensor, Tensor], *, reduction: Reduction = "mean"
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the mean of the cross entropies of first and last tokens.

        Args:
            enc: An encoded batch of pairs, on the model's device like the labels.
            labels: First and last tokens, each ``[B]``; beyond the length for no answer.
            reduction: ``"mean"``, or ``"sum"`` for the sum and what to divide it by.

        Raises:
            HeadError: The labels do not fit.
        """
        starts, ends = labels
        return reduced(question_loss(self.forward_encoded(enc), starts, ends), reduction)


def _best_span(
    logits: Tensor, in_context: Tensor, offsets: Tensor, texts: tuple[str, ...], rules: Rules
) -> tuple[float, Answer]:
    """Return the best span of one row, and the sum of its logits.

    Only tokens of the context count. Among equal spans the first start wins, then the first end.
    """
    if not bool(in_context.any()):
        raise HeadError(
            f"question {texts[0][:40]!r}: there is no token of a context",
            hint="give a context that is not empty, after the question",
        )
    start, end = (logits[:, side].masked_fill(~in_context, float("-inf")) for side in (0, 1))
    length = len(start)
    at = torch.arange(length)
    reach = length if rules.max_answer_tokens is None else rules.max_answer_tokens
    gap = at[None, :] - at[:, None]
    sums = (start[:, None] + end[None, :]).masked_fill((gap < 0) | (gap >= reach), float("-inf"))
    best = int(sums.argmax())
    first, last = best // length, best % length
    total = float(sums[first, last])
    empty = float(logits[0, 0] + logits[0, 1])
    if rules.allow_no_answer and empty > total:
        both = torch.softmax(logits, dim=0)[0]
        return empty, Answer("", 0, 0, float(both[0] * both[1]), 0, 0)
    score = torch.softmax(start, 0)[first] * torch.softmax(end, 0)[last]
    begin, finish = int(offsets[first, 0]), int(offsets[last, 1])
    text = texts[1][begin:finish]
    return total, Answer(text, first, last, float(score), begin, finish)
