"""From token ids to the first hidden states."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flodl_hf.config.base import Sizes
from flodl_hf.encoder.masks import prepare_mask
from flodl_hf.encoder.spec import FamilySpec
from flodl_hf.errors import HeadError


def offset_positions(input_ids: Tensor, pad: int) -> Tensor:
    """Return RoBERTa's positions: real tokens count from ``pad + 1``, pads have ``pad``.

    ``[0, 5, 1, 6, 2, 1, 1]`` with pad 1 gives ``[2, 3, 1, 4, 5, 1, 1]``.
    """
    real = (input_ids != pad).long()
    return torch.cumsum(real, dim=1) * real + pad


class Embeddings(nn.Module):
    """Sum of the word table and the tables the family adds, normalized.

    Args:
        sizes: Sizes of the encoder.
        spec: The family.
        has_positions: Whether there is a table of absolute positions.
        width: Width of the output, when a projection widens the tables before the norm.
        masks_output: Whether pads become zero.
    """

    def __init__(
        self,
        sizes: Sizes,
        spec: FamilySpec,
        *,
        has_positions: bool = True,
        width: int | None = None,
        masks_output: bool = False,
    ) -> None:
        super().__init__()
        narrow = sizes.embedding
        out = narrow if width is None else width
        self._pad = sizes.pad
        self._offset = spec.positions == "offset"
        self._sums = spec.sums
        self._masks_output = masks_output
        self.word_embeddings = nn.Embedding(sizes.vocab, narrow, padding_idx=sizes.pad)
        self.position_embeddings = (
            nn.Embedding(sizes.positions, narrow, padding_idx=sizes.pad if self._offset else None)
            if has_positions
            else None
        )
        self.token_type_embeddings = nn.Embedding(sizes.types, narrow) if sizes.types else None
        self.embed_proj = nn.Linear(narrow, out, bias=False) if out != narrow else None
        self.LayerNorm = nn.LayerNorm(out, eps=sizes.eps)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Return ``[B, S, H]`` for ids ``[B, S]``.

        Raises:
            HeadError: Token types for a model without a table of them, or more tokens than
                positions.
        """
        x: Tensor = self.word_embeddings(input_ids)
        for table in self._sums:
            if table == "type":
                x = self._add_types(x, token_type_ids)
            else:
                x = self._add_positions(x, input_ids, position_ids)
        if self.embed_proj is not None:
            x = self.embed_proj(x)
        x = self.LayerNorm(x)
        mask = prepare_mask(attention_mask) if self._masks_output else None
        if mask is not None:
            x = x * mask[:, 0, 0, :, None].to(x.dtype)
        out: Tensor = self.dropout(x)
        return out

    def _add_types(self, x: Tensor, token_type_ids: Tensor | None) -> Tensor:
        if self.token_type_embeddings is None:
            if token_type_ids is not None:
                raise HeadError(
                    "token_type_ids were given: this model has no table of token types",
                    hint="leave them out",
                )
            return x
        if token_type_ids is None:
            return x + self.token_type_embeddings.weight[0]
        added: Tensor = self.token_type_embeddings(token_type_ids)
        return x + added

    def _add_positions(self, x: Tensor, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        table = self.position_embeddings
        if table is None:
            return x
        length = input_ids.shape[1]
        first = self._pad + 1 if self._offset else 0
        if length > table.num_embeddings - first:
            raise HeadError(
                f"{length} tokens: this model takes {table.num_embeddings - first}",
                hint="truncate the texts when encoding them",
            )
        if position_ids is None and not self._offset:
            return x + table.weight[:length]
        if position_ids is None:
            position_ids = offset_positions(input_ids, self._pad)
        added: Tensor = table(position_ids)
        return x + added
