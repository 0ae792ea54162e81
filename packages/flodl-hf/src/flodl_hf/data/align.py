"""From labels of words, or places in a text, to labels of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flodl_hf.errors import HeadError
from flodl_hf.tokenizer.encoded import EncodedBatch, Row

IGNORED = -100


def align_labels(
    enc: EncodedBatch, word_labels: Sequence[Sequence[int]], *, only_first: bool = True
) -> Tensor:
    """Return a label for each token, ``[B, S]``: -100 on specials and padding.

    Args:
        enc: An encoded batch.
        word_labels: A label for each word of each text.
        only_first: Give the further pieces of a word -100, too.

    Raises:
        HeadError: A text has another number of words than labels.
    """
    if len(word_labels) != enc.size:
        raise HeadError(f"labels for {len(word_labels)} texts: the batch has {enc.size}")
    rows = [
        token_labels(words, labels, row, only_first=only_first)
        for row, (words, labels) in enumerate(zip(enc.word_ids.tolist(), word_labels, strict=True))
    ]
    return torch.tensor(rows)


def token_labels(
    words: Sequence[int | None], labels: Sequence[int], row: int, *, only_first: bool
) -> list[int]:
    """Return the labels of one row's tokens; see ``align_labels``."""
    plain = [-1 if word is None else word for word in words]
    count = max(plain, default=-1) + 1
    if count != len(labels):
        raise HeadError(
            f"text {row} has {count} words for the tokenizer, and {len(labels)} labels",
            hint="split the text as the tokenizer does: punctuation is a word of its own",
        )
    before = [-1, *plain[:-1]]
    return [
        IGNORED if word < 0 or (only_first and word == last) else labels[word]
        for word, last in zip(plain, before, strict=True)
    ]


def token_span(row: Row, start_char: int, end_char: int) -> tuple[int, int]:
    """Return first and last token of the characters ``start_char`` up to ``end_char``.

    Both are the length of the row, which no loss counts, when the tokens are not all there.
    """
    inside = [
        index
        for index, (sequence, (begin, end)) in enumerate(
            zip(row.sequences, row.offsets, strict=True)
        )
        if sequence == 1 and begin < end_char and end > start_char
    ]
    if not inside or row.offsets[inside[-1]][1] < end_char:
        return NOWHERE, NOWHERE
    return inside[0], inside[-1]


NOWHERE = 1 << 30
"""A place beyond every text."""
