"""Texts with labels as data sets: encoded once, padded batch by batch to few lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flodl_hf.data.align import IGNORED, token_labels, token_span
from flodl_hf.data.masking import MlmCollator
from flodl_hf.errors import EmptyBatchError, SequenceTooLongError
from flodl_hf.tokenizer.encoded import EncodedBatch, Row
from flodl_hf.tokenizer.given import Truncation
from flodl_hf.tokenizer.tokenizer import HfTokenizer

BUCKETS = (32, 64, 128, 256, 512)
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """How long encoded texts may be.

    Attributes:
        max_length: Cut longer ones; nothing is cut when left out.
        buckets: A batch is padded to the first of these that fits, so that few shapes come up.
    """

    max_length: int | None = None
    buckets: tuple[int, ...] = BUCKETS


class EncodedRows:
    """Rows that were encoded once; ``batch`` pads some of them. The data sets hold one."""

    def __init__(
        self,
        tokenizer: HfTokenizer,
        inputs: Sequence[tuple[str, ...]],
        lengths: Lengths,
        *,
        only_second: bool = False,
    ) -> None:
        if not inputs:
            raise EmptyBatchError("a data set of no texts", hint="give one or more")
        self._tokenizer = tokenizer
        self._buckets = sorted(lengths.buckets)
        strategy: Truncation = "only_second" if only_second else "longest_first"
        self.rows: list[Row] = tokenizer.rows(
            inputs, None if lengths.max_length is None else strategy, lengths.max_length
        )
        longest = max(range(len(self.rows)), key=lambda index: len(self.rows[index].ids))
        count = len(self.rows[longest].ids)
        if count > self._buckets[-1]:
            raise SequenceTooLongError(count, self._buckets[-1], longest)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Tensor) -> EncodedBatch:
        """Return the rows of some indices, padded to a bucket.

        The pads come last whatever the tokenizer does elsewhere: positions are then those that a
        model counts by itself, and batches need not carry them.
        """
        rows = [self.rows[index] for index in indices.tolist()]
        longest = max(len(row.ids) for row in rows)
        width = next(bucket for bucket in self._buckets if bucket >= longest)
        return self._tokenizer.padded(rows, width, on_left=False)


def _inputs_of(enc: EncodedBatch) -> dict[str, Tensor]:
    return {name: enc[name] for name in _INPUTS}


class TextDataset:
    """Texts with a label each: a class, a number, or a number for each class.

    Batches have ``input_ids``, ``attention_mask``, ``token_type_ids`` and ``labels``.

    Args:
        rows: Text and label.
        tokenizer: Of the model.
        lengths: How long texts may be.

    Raises:
        EmptyBatchError: There are no rows.
        SequenceTooLongError: A text is longer than the largest bucket.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, float | Sequence[float]]],
        tokenizer: HfTokenizer,
        *,
        lengths: Lengths | None = None,
    ) -> None:
        texts = [(text,) for text, _ in rows]
        self._encoded = EncodedRows(tokenizer, texts, lengths or Lengths())
        self._labels = torch.tensor([label for _, label in rows])

    def __len__(self) -> int:
        return len(self._encoded)

    def get_batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Return the rows of some indices."""
        return {
            **_inputs_of(self._encoded.batch(indices)),
            "labels": self._labels[indices],
        }


class PairDataset:
    """Pairs of texts: with a label each, or with the place of the answer in the second text.

    Batches have ``input_ids``, ``attention_mask``, ``token_type_ids``, and ``labels``, or
    ``start_positions`` and ``end_positions`` for answers; one that was cut off counts as none.

    Args:
        rows: First text, second text, and a label; or, for answers, first character and the one
            after the last in the second text.
        tokenizer: Of the model.
        lengths: How long pairs may be; the second text is the one that is cut.

    Raises:
        EmptyBatchError: There are no rows.
        SequenceTooLongError: A pair is longer than the largest bucket.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, str, float | tuple[int, int]]],
        tokenizer: HfTokenizer,
        *,
        lengths: Lengths | None = None,
    ) -> None:
        pairs = [(first, second) for first, second, _ in rows]
        self._encoded = EncodedRows(tokenizer, pairs, lengths or Lengths(), only_second=True)
        places = [target for *_, target in rows if isinstance(target, tuple)]
        self._targets: dict[str, Tensor] = {}
        if len(places) == len(rows):
            spans = [
                token_span(row, *place)
                for row, place in zip(self._encoded.rows, places, strict=True)
            ]
            starts, ends = torch.tensor(spans).unbind(1)
            self._targets = {"start_positions": starts, "end_positions": ends}
        else:
            self._targets = {"labels": torch.tensor([target for *_, target in rows])}

    def __len__(self) -> int:
        return len(self._encoded)

    def get_batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Return the rows of some indices."""
        targets = {name: value[indices] for name, value in self._targets.items()}
        return {**_inputs_of(self._encoded.batch(indices)), **targets}


class TokenDataset:
    """Texts with a label for each word.

    Batches have ``input_ids``, ``attention_mask``, ``token_type_ids`` and ``labels`` ``[B, S]``,
    -100 where nothing counts.

    Args:
        rows: Text, and the labels of its words as the tokenizer splits them.
        tokenizer: Of the model.
        only_first: Only the first piece of a word counts.
        lengths: How long texts may be; ``max_length`` must not cut any.

    Raises:
        EmptyBatchError: There are no rows.
        HeadError: A text has another number of words than labels.
        SequenceTooLongError: A text is longer than the largest bucket.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, Sequence[int]]],
        tokenizer: HfTokenizer,
        *,
        only_first: bool = True,
        lengths: Lengths | None = None,
    ) -> None:
        texts = [(text,) for text, _ in rows]
        self._encoded = EncodedRows(tokenizer, texts, lengths or Lengths())
        self._labels = [
            token_labels(row.words, labels, index, only_first=only_first)
            for index, (row, (_, labels)) in enumerate(zip(self._encoded.rows, rows, strict=True))
        ]

    def __len__(self) -> int:
        return len(self._encoded)

    def get_batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Return the rows of some indices."""
        enc = self._encoded.batch(indices)
        labels = torch.full_like(enc.input_ids, IGNORED)
        # The places of real tokens, on whatever side the padding is.
        labels[enc.attention_mask.bool()] = torch.tensor(
            [label for index in indices.tolist() for label in self._labels[index]]
        )
        return {**_inputs_of(enc), "labels": labels}


class MlmDataset:
    """Texts of which tokens are hidden, others in each epoch.

    Batches have ``input_ids``, ``attention_mask``, ``token_type_ids`` and ``labels``; with a limit
    of the collator also ``positions``.

    Args:
        texts: The texts.
        tokenizer: Of the model.
        collator: How tokens are hidden.
        lengths: How long texts may be.

    Raises:
        EmptyBatchError: There are no texts.
        SequenceTooLongError: A text is longer than the largest bucket.
    """

    is_fixed = False

    def __init__(
        self,
        texts: Sequence[str],
        tokenizer: HfTokenizer,
        *,
        collator: MlmCollator | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        self._encoded = EncodedRows(tokenizer, [(text,) for text in texts], lengths or Lengths())
        self._collator = collator or MlmCollator(tokenizer)
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._encoded)

    def set_epoch(self, epoch: int) -> None:
        """Hide other tokens from now on; the same epoch hides the same ones."""
        self._epoch = epoch

    def get_batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Return the rows of some indices, tokens hidden."""
        enc = self._encoded.batch(indices)
        draw = self._epoch * 1_000_003 + int(indices.sum()) * 31 + int(indices[0])
        hidden = self._collator(enc.input_ids, enc.sequence_ids, draw=draw)
        return {**_inputs_of(enc), **hidden}
