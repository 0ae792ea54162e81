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


Scored = tuple[float, Answer]


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
            allow_no_answer: Return an empty answer where the first token scores higher; of several
                windows, in the one where it scores lowest.
            stride: Read a context that is too long in windows that overlap by this many tokens.
            batch_size: Windows in one call of the model.

        Raises:
            HeadError: There is no tokenizer, or a context without tokens.
            SequenceTooLongError: A pair is too long, and there is no stride.
        """
        given = text_pairs(pairs, "answer_batch")
        tokenizer = self.need_tokenizer("answer_batch")
        rules = Rules(max_answer_tokens=max_answer_tokens, allow_no_answer=allow_no_answer)
        best: dict[int, Scored] = {}
        empty: dict[int, Scored] = {}
        for enc in text_batches(tokenizer, given, size=batch_size, limit=self.limit, stride=stride):
            for source, (span, none) in zip(enc.sources, self._extract(enc, rules), strict=True):
                best[source] = max(best.get(source, span), span, key=_logits)
                empty[source] = min(empty.get(source, none), none, key=_logits)
        pairs_found = zip(in_order(best), in_order(empty), strict=True)
        return [_chosen(span, none, rules) for span, none in pairs_found]

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
        return [_chosen(span, none, rules) for span, none in self._extract(enc, rules)]

    def _extract(self, enc: EncodedBatch, rules: Rules) -> list[tuple[Scored, Scored]]:
        """Return the best span of each row, and no answer; each with the sum of its logits."""
        with self.predicting():
            logits = self.forward_encoded(self.moved(enc)).float().cpu()
        return [
            _best_span(
                logits[row],
                (enc.sequence_ids[row] == 1).cpu(),
                enc.offsets[row].cpu(),
                enc.texts[row],
                rules,
                real=(enc.attention_mask[row] != 0).cpu(),
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
    logits: Tensor,
    in_context: Tensor,
    offsets: Tensor,
    texts: tuple[str, ...],
    rules: Rules,
    *,
    real: Tensor,
) -> tuple[Scored, Scored]:
    """Return the best span of one row, and no answer; each with the sum of its logits.

    Only tokens of the context count. Among equal spans the first start wins, then the first end.
    The first token that is ``real``, and no pad, stands for no answer.
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
    begin, last = best // length, best % length
    total = float(sums[begin, last])
    first = int(real.long().argmax())
    both = torch.softmax(logits.masked_fill(~real[:, None], float("-inf")), dim=0)[first]
    none = Answer("", first, first, float(both.prod()), 0, 0)
    score = torch.softmax(start, 0)[begin] * torch.softmax(end, 0)[last]
    start_char, end_char = int(offsets[begin, 0]), int(offsets[last, 1])
    text = texts[1][start_char:end_char]
    span = Answer(text, begin, last, float(score), start_char, end_char)
    return (total, span), (float(logits[first].sum()), none)


def _logits(scored: Scored) -> float:
    return scored[0]


def _chosen(span: Scored, none: Scored, rules: Rules) -> Answer:
    return none[1] if rules.allow_no_answer and none[0] > span[0] else span[1]
