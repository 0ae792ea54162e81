"""A batch of encoded texts: token ids, and where each token came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from flodl.data.batch import Batch, StaticValue

NAMES = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "sequence_ids",
    "word_ids",
    "offsets",
    "lengths",
)


class TakesEncoded(Protocol):
    """A model that knows which tensors of a batch it needs."""

    def inputs_of(self, enc: Batch | Mapping[str, Tensor]) -> dict[str, Tensor | None]:
        """Return the keyword arguments of a call."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One encoded text or pair, before padding; the fields are those of ``EncodedBatch``."""

    ids: Sequence[int]
    types: Sequence[int]
    sequences: Sequence[int | None]
    words: Sequence[int | None]
    offsets: Sequence[tuple[int, int]]
    source: int
    texts: tuple[str, ...]


class EncodedBatch(Batch):
    """Encoded texts as a ``Batch``: by name, by index, or as properties.

    All tensors are int64. ``input_ids``, ``attention_mask``, ``token_type_ids`` and
    ``position_ids`` are ``[B, S]``. ``sequence_ids`` is 0 in the first text, 1 in the second, -1
    for specials and padding; ``word_ids`` is -1 for those, too. ``offsets`` ``[B, S, 2]`` are
    characters of the text; ``lengths`` ``[B]`` counts tokens without padding.

    Attributes:
        texts: The text of each row, or both of a pair.
        sources: Which of the given texts a row is of; rows repeat one when it had to be cut into
            windows.
    """

    __slots__ = ("sources", "texts")

    texts: tuple[tuple[str, ...], ...]
    sources: tuple[int, ...]

    @classmethod
    def of(
        cls, rows: Sequence[Row], *, pad: int, length: int, on_left: bool = False
    ) -> EncodedBatch:
        """Return rows padded to ``length`` with the token ``pad``."""
        size = (len(rows), length)
        ids = torch.full(size, pad, dtype=torch.long)
        mask, types = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
        sequences, words = torch.full(size, -1), torch.full(size, -1)
        offsets = torch.zeros(*size, 2, dtype=torch.long)
        for index, row in enumerate(rows):
            count = len(row.ids)
            at = slice(length - count, length) if on_left else slice(0, count)
            ids[index, at] = torch.tensor(row.ids, dtype=torch.long)
            mask[index, at] = 1
            types[index, at] = torch.tensor(row.types, dtype=torch.long)
            sequences[index, at] = torch.tensor([-1 if v is None else v for v in row.sequences])
            words[index, at] = torch.tensor([-1 if v is None else v for v in row.words])
            offsets[index, at] = torch.tensor(row.offsets, dtype=torch.long).reshape(count, 2)
        lengths = mask.sum(1)
        has_padding = any(len(row.ids) < length for row in rows)
        if on_left and has_padding:
            positions = (mask.cumsum(1) - 1).clamp(min=0)
        else:
            positions = torch.arange(length).expand(size).clone()
        batch = cls(
            (ids, mask, types, positions, sequences, words, offsets, lengths),
            NAMES,
            static={"has_padding": has_padding, "pads_left": on_left and has_padding},
        )
        batch.texts = tuple(row.texts for row in rows)
        batch.sources = tuple(row.source for row in rows)
        return batch

    @property
    def input_ids(self) -> Tensor:
        """Token ids, ``[B, S]``."""
        return self["input_ids"]

    @property
    def attention_mask(self) -> Tensor:
        """1 for tokens of the text and specials, 0 for padding, ``[B, S]``."""
        return self["attention_mask"]

    @property
    def token_type_ids(self) -> Tensor:
        """What the tokenizer says about first and second text, ``[B, S]``."""
        return self["token_type_ids"]

    @property
    def position_ids(self) -> Tensor:
        """0, 1, … from the first token on, ``[B, S]``."""
        return self["position_ids"]

    @property
    def sequence_ids(self) -> Tensor:
        """0 in the first text, 1 in the second, -1 elsewhere, ``[B, S]``."""
        return self["sequence_ids"]

    @property
    def word_ids(self) -> Tensor:
        """Number of the word in its text, -1 outside words, ``[B, S]``."""
        return self["word_ids"]

    @property
    def offsets(self) -> Tensor:
        """First character and the one after the last, ``[B, S, 2]``."""
        return self["offsets"]

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row without padding, ``[B]``."""
        return self["lengths"]

    @property
    def has_padding(self) -> bool:
        """Whether any row is padded; known without asking the device."""
        return bool(self.static["has_padding"])

    def inputs(self, model: TakesEncoded) -> dict[str, Tensor | None]:
        """Return the keyword arguments of a call of ``model``."""
        return model.inputs_of(self)

    def rows(self, start: int, end: int) -> EncodedBatch:
        """Return the rows from ``start`` up to, not including, ``end``."""
        batch = self._like(tuple(tensor[start:end] for tensor in self), self.static)
        batch.texts, batch.sources = self.texts[start:end], self.sources[start:end]
        return batch

    def to(self, device: str | torch.device, non_blocking: bool = False) -> EncodedBatch:
        """Return the batch on a device."""
        return self._with(tensor.to(device, non_blocking=non_blocking) for tensor in self)

    def pin_memory(self) -> EncodedBatch:
        """Return a copy in page-locked memory."""
        return self._with(tensor.pin_memory() for tensor in self)

    def clone(self) -> EncodedBatch:
        """Return a copy that owns its tensors."""
        return self._with(tensor.clone() for tensor in self)

    def _with(self, tensors: object) -> EncodedBatch:
        batch = self._like(tuple(tensors), self.static)  # type: ignore[arg-type] # a generator
        batch.texts, batch.sources = self.texts, self.sources
        return batch

    def _like(self, tensors: tuple[Tensor, ...], static: Mapping[str, StaticValue]) -> Self:
        return type(self)(tensors, self.names, epoch=self.epoch, index=self.index, static=static)
