"""What the calls of a tokenizer are given, checked before the library sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from flodl_hf.errors import EmptyBatchError

Truncation = Literal["longest_first", "only_first", "only_second"]


def checked_texts(texts: Sequence[object], call: str) -> list[str]:
    """Return texts as a list.

    Raises:
        TypeError: A single text, or something in the list that is none.
        EmptyBatchError: There are none.
    """
    if isinstance(texts, str):
        raise TypeError(
            f"{call}({texts[:40]!r}): expected a list of texts; a single one is [{texts[:20]!r}]"
        )
    given = []
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{call}: text {index} is a {type(text).__name__}, expected a str")
        given.append(text)
    if not given:
        raise EmptyBatchError(f"{call}: there are no texts", hint="give one or more")
    return given


def checked_pairs(pairs: Sequence[object]) -> list[tuple[str, ...]]:
    """Return pairs of texts as a list.

    Raises:
        TypeError: A text, or something in the list that is no pair of texts.
        EmptyBatchError: There are none.
    """
    if isinstance(pairs, str):
        raise TypeError(f"encode_pairs({pairs[:40]!r}): expected a list of pairs, not a text")
    given = []
    for index, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"encode_pairs: item {index} is {pair!r:.60}, expected two texts")
        given.append(tuple(pair))
    checked_texts([text for pair in given for text in pair], "encode_pairs")
    return given


def strategy_of(
    truncation: bool | Truncation, max_length: int | None, stride: int | None = None
) -> Truncation | None:
    """Return how texts are cut, or ``None`` for not at all.

    Raises:
        ValueError: The arguments do not go together.
    """
    strategy = "longest_first" if truncation is True else truncation
    if stride is not None and (stride < 0 or strategy not in {"only_first", "only_second"}):
        raise ValueError(
            f"stride={stride} with truncation={truncation!r}: expected 0 or more, and "
            "'only_first' or 'only_second', the text that is read in windows"
        )
    if strategy is False:
        return None
    if strategy not in get_args(Truncation):
        raise ValueError(
            f"truncation={truncation!r}: expected a Boolean, or one of "
            f"{', '.join(get_args(Truncation))}"
        )
    if max_length is None:
        raise ValueError("truncation needs max_length: the number of tokens to keep")
    return strategy


def surrogate_row(inputs: Sequence[tuple[str, ...]]) -> int:
    """Return which input holds a character that no encoding has."""
    for index, texts in enumerate(inputs):
        if any("\ud800" <= char <= "\udfff" for text in texts for char in text):
            return index
    raise AssertionError("the texts were checked to be strings")
