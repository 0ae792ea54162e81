"""Hiding tokens, for the training of masked language models."""

from __future__ import annotations

import torch
from torch import Tensor

from flodl_hf.data.align import IGNORED
from flodl_hf.errors import MaskTokenError
from flodl_hf.tokenizer.tokenizer import HfTokenizer


class MlmCollator:
    """Hides tokens of encoded batches: 80 % become the mask, 10 % another token, 10 % stay.

    After Devlin et al., BERT (2019), section 3.1. Specials and padding are never hidden.

    Args:
        tokenizer: Of the model.
        p: Part of the tokens to hide.
        max_predictions: Hide at most this many in a row, and return where they stand.
        seed: Of the random numbers.

    Raises:
        MaskTokenError: The tokenizer has no mask token.
        ValueError: ``p`` is not between 0 and 1.
    """

    def __init__(
        self,
        tokenizer: HfTokenizer,
        *,
        p: float = 0.15,
        max_predictions: int | None = None,
        seed: int = 0,
    ) -> None:
        mask = tokenizer.special.mask
        if mask is None:
            raise MaskTokenError("the tokenizer has no mask token", hint="name it in its files")
        if not 0 < p < 1:
            raise ValueError(f"p={p}: expected a number between 0 and 1")
        found = tokenizer.token_to_id(mask)
        assert found is not None, "special tokens are in the vocabulary"
        self._mask_id, self._size = found, tokenizer.highest_id + 1
        self._p, self._most, self._seed = p, max_predictions, seed

    def __call__(
        self, input_ids: Tensor, sequence_ids: Tensor, *, draw: int = 0
    ) -> dict[str, Tensor]:
        """Return ``input_ids`` with hidden tokens, and ``labels``; with a limit ``positions``.

        Args:
            input_ids: ``[B, S]``.
            sequence_ids: -1 for what may not be hidden, ``[B, S]``.
            draw: Number of the draw: the same one hides the same tokens.
        """
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + draw)
        chance = torch.rand(input_ids.shape, generator=generator)
        chosen = (chance < self._p) & (sequence_ids >= 0)
        if self._most is not None:
            rank = chance.masked_fill(~chosen, 2.0).argsort(1).argsort(1)
            chosen &= rank < self._most
        kind = torch.rand(input_ids.shape, generator=generator)
        other = torch.randint(0, self._size, input_ids.shape, generator=generator)
        hidden = torch.where(kind < 0.8, torch.full_like(input_ids, self._mask_id), input_ids)
        hidden = torch.where((kind >= 0.8) & (kind < 0.9), other, hidden)
        labels = input_ids.masked_fill(~chosen, IGNORED)
        result = {"input_ids": torch.where(chosen, hidden, input_ids), "labels": labels}
        if self._most is not None:
            places = chosen.long().argsort(dim=1, descending=True, stable=True)
            places = places[:, : self._most]
            result |= {"positions": places, "labels": labels.gather(1, places)}
        return result
