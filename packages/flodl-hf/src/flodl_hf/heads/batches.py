"""Texts in batches: encoded once, alike lengths together, results in the order of the texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard, TypeVar

from flodl_hf.errors import SequenceTooLongError
from flodl_hf.tokenizer.encoded import EncodedBatch
from flodl_hf.tokenizer.tokenizer import HfTokenizer

T = TypeVar("T")


def text_batches(
    tokenizer: HfTokenizer,
    texts: Sequence[tuple[str, ...]],
    *,
    size: int,
    limit: int | None,
    stride: int | None = None,
) -> Iterator[EncodedBatch]:
    """Yield texts, or pairs of them, in encoded batches; ``sources`` say which texts they are.

    Args:
        tokenizer: What encodes them.
        texts: One or two for each row.
        size: Rows of a batch.
        limit: Tokens that the model takes, or ``None`` for any number.
        stride: Cut a second text that is too long into windows that repeat this many tokens.

    Raises:
        ValueError: ``size`` is less than 1.
        TokenizerError: A text cannot be encoded, or has more than ``limit`` tokens.
    """
    if size < 1:
        raise ValueError(f"batch_size={size}: expected 1 or more")
    is_cut = stride is not None and limit is not None
    rows = tokenizer.rows(
        texts,
        "only_second" if is_cut else None,
        limit if is_cut else None,
        stride=stride if is_cut else None,
    )
    for row in rows:
        if limit is not None and len(row.ids) > limit:
            raise SequenceTooLongError(len(row.ids), limit, row.source)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    for start in range(0, len(order), size):
        yield tokenizer.padded([rows[index] for index in order[start : start + size]])


def in_order(found: Mapping[int, T]) -> list[T]:
    """Return results by index as a list."""
    return [found[index] for index in range(len(found))]


def single_texts(texts: Sequence[str], method: str) -> list[tuple[str, ...]]:
    """Return texts as rows of one.

    Raises:
        TypeError: A text where a list is expected, or something in the list that is no text.
    """
    return [_row(text, method, index, (1,)) for index, text in enumerate(_listed(texts, method))]


def texts_or_pairs(
    texts: Sequence[str] | Sequence[tuple[str, str]], method: str
) -> list[tuple[str, ...]]:
    """Return texts as rows of one, and pairs of them as rows of two.

    Raises:
        TypeError: A text where a list is expected, or something in the list that is neither.
    """
    return [_row(text, method, index, (1, 2)) for index, text in enumerate(_listed(texts, method))]


def text_pairs(pairs: Sequence[tuple[str, str]], method: str) -> list[tuple[str, ...]]:
    """Return pairs of texts as rows of two.

    Raises:
        TypeError: A text where a list is expected, or something in the list that is no pair.
    """
    return [_row(pair, method, index, (2,)) for index, pair in enumerate(_listed(pairs, method))]


def _listed(value: Sequence[object], method: str) -> list[object]:
    if isinstance(value, str):  # it would be taken letter by letter
        raise TypeError(
            f"{method}({value[:40]!r}): expected a list; for a single one [{value[:20]!r}]"
        )
    return list(value)


def _row(value: object, method: str, index: int, counts: tuple[int, ...]) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    texts = [text for text in given if isinstance(text, str)] if _is_row(given) else []
    if not _is_row(given) or len(given) not in counts or len(texts) != len(given):
        words = {(1,): "a text", (2,): "two texts", (1, 2): "a text or two"}[counts]
        raise TypeError(f"{method}: item {index} is {value!r:.60}, expected {words}")
    return tuple(texts)


def _is_row(value: object) -> TypeGuard[tuple[object, ...] | list[object]]:
    return isinstance(value, tuple | list)
