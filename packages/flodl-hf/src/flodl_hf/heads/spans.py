"""Labels of tokens joined into spans of text, such as whole names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from flodl_hf.errors import HeadError

Aggregation = Literal["simple", "first", "average", "max"]
_OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class EntitySpan:
    """A part of a text that a model gives one label.

    Attributes:
        text: The part itself.
        label: Its class, without the ``B-`` or ``I-`` of a single token.
        score: Mean probability over its tokens, or its words.
        start: First character in the text.
        end: The character after the last.
    """

    text: str
    label: str
    score: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """A token or a word with its best class."""

    label: str
    score: float
    start: int
    end: int


def check_aggregation(given: str) -> None:
    """Check the name of a way to join tokens.

    Raises:
        HeadError: There is none of this name.
    """
    legal = ("none", *get_args(Aggregation))
    if given not in legal:
        raise HeadError(f"aggregate={given!r}: expected one of {', '.join(map(repr, legal))}")


def spans_of(
    text: str,
    scores: Tensor,
    words: Sequence[int],
    offsets: Sequence[Sequence[int]],
    labels: Sequence[str],
    how: Aggregation,
) -> list[EntitySpan]:
    """Return the labelled parts of one text; what is labelled ``O`` is left out.

    Neighbours join when they have one class and the later one does not begin anew (``B-``).

    Args:
        text: What was encoded.
        scores: Probabilities ``[S, L]``.
        words: Number of each token's word; -1 for those that are not of the text.
        offsets: First character of each token and the one after its last.
        labels: Names of the ``L`` classes.
        how: ``"simple"`` takes each token by itself. The others let a word have one class: that of
            its first token, of the mean over its tokens, or of the token that is surest.
    """
    pieces = _pieces(scores, words, offsets, labels, how)
    spans = []
    for group in _joined(pieces):
        kind = _parts(group[0].label)[1]
        if kind == _OUTSIDE:
            continue
        start, end = group[0].start, group[-1].end
        spans.append(
            EntitySpan(
                text=text[start:end],
                label=kind,
                score=sum(piece.score for piece in group) / len(group),
                start=start,
                end=end,
            )
        )
    return spans


def _pieces(
    scores: Tensor,
    words: Sequence[int],
    offsets: Sequence[Sequence[int]],
    labels: Sequence[str],
    how: Aggregation,
) -> Iterator[_Piece]:
    """Yield the tokens of a text, or its words, each with its class."""
    tokens = [index for index, word in enumerate(words) if word >= 0]
    alike = (lambda index: index) if how == "simple" else words.__getitem__
    for _, group in itertools.groupby(tokens, key=alike):
        members = list(group)
        score, kind = _chosen(scores[members], how).max(-1)
        yield _Piece(
            label=labels[int(kind)],
            score=float(score),
            start=offsets[members[0]][0],
            end=offsets[members[-1]][1],
        )


def _chosen(scores: Tensor, how: Aggregation) -> Tensor:
    """Return the probabilities ``[L]`` that a word has, of those of its tokens."""
    match how:
        case "average":
            return scores.mean(0)
        case "max":
            return scores[int(torch.argmax(scores.max(-1).values))]
        case "first" | "simple":
            return scores[0]


def _joined(pieces: Iterator[_Piece]) -> Iterator[list[_Piece]]:
    """Yield neighbours that belong together."""
    group: list[_Piece] = []
    for piece in pieces:
        begins, kind = _parts(piece.label)
        if group and (begins or kind != _parts(group[-1].label)[1]):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _parts(label: str) -> tuple[bool, str]:
    """Return whether a label begins something, and the class without that mark."""
    if label[:2] in {"B-", "I-"}:
        return label[0] == "B", label[2:]
    return False, label
