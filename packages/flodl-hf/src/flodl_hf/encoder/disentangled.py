"""DeBERTa: attention over contents and relative positions, and the convolution beside it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from flodl_hf.config.deberta import DebertaV2Config
from flodl_hf.encoder.activations import activation
from flodl_hf.encoder.distances import Distances
from flodl_hf.encoder.layer import PostNorm, place
from flodl_hf.encoder.masks import prepare_mask
from flodl_hf.encoder.spec import FamilySpec


class PairMask(nn.Module):
    """Makes the mask of token pairs once, for all layers."""

    def forward(self, _input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor | None:
        """Return bool ``[B, 1, S, S]``: both tokens are real; or ``None``."""
        mask = prepare_mask(attention_mask)
        return None if mask is None else mask & mask.transpose(-1, -2)


class RelativeTable(nn.Module):
    """The table of relative positions, normalized if the model says so.

    Its place in the graph is that of the whole encoder: the layers are its children. A model
    without relative positions may still have the norm, in its checkpoints, and never uses it.
    """

    def __init__(self, config: DebertaV2Config, distances: Distances | None) -> None:
        super().__init__()
        hidden = config.hidden_size
        self._distances = (distances,)  # in a tuple: it is a node of its own, not a part of this
        self.rel_embeddings = nn.Embedding(2 * config.span(), hidden) if distances else None
        self.LayerNorm = (
            nn.LayerNorm(hidden, eps=config.layer_norm_eps) if config.normalizes_table() else None
        )

    def forward(self, x: Tensor) -> Tensor | None:
        """Return the rows that ``S`` tokens can use, ``[R, H]``, for states ``[B, S, H]``."""
        (distances,) = self._distances
        if distances is None or self.rel_embeddings is None:
            return None
        first, end = distances.rows(x.shape[1])
        rows = self.rel_embeddings.weight[first:end]
        if self.LayerNorm is not None:
            rows = self.LayerNorm(rows)
        return rows


class DisentangledLayer(PostNorm):
    """One layer whose attention also scores content against relative position, both ways."""

    def __init__(self, config: DebertaV2Config, spec: FamilySpec) -> None:
        width = config.num_attention_heads * config.head_width()
        super().__init__(config.sizes(), spec, attended=width)
        own = config.relative_attention and not config.share_att_key
        kinds = config.pos_att_type if config.relative_attention else ()
        self._content_to_position = "c2p" in kinds
        self._position_to_content = "p2c" in kinds
        self._scale = 1 / math.sqrt(config.head_width() * (1 + len(set(config.pos_att_type))))
        self._p_table = config.hidden_dropout_prob
        self._position_key, self._position_query = self._key, self._query
        if own and self._content_to_position:
            keys = nn.Linear(config.hidden_size, width)
            self._position_key = place(self, "attention.self.pos_key_proj", keys)
        if own and self._position_to_content:
            queries = nn.Linear(config.hidden_size, width)
            self._position_query = place(self, "attention.self.pos_query_proj", queries)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rel: Tensor | None = None,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return ``[B, S, H]``.

        Args:
            x: ``[B, S, H]``.
            mask: Bool ``[B, 1, S, S]``.
            rel: Rows of the position table, ``[R, H]``.
            distance: Row for each pair of tokens, ``[S, S]``.
        """
        return self.complete(x, self._gathered(x, mask, rel, distance))

    def _gathered(
        self, x: Tensor, mask: Tensor | None, rel: Tensor | None, distance: Tensor | None
    ) -> Tensor:
        q, k, v = self.project(x)
        bias = None
        if rel is not None and distance is not None:
            bias = self._position_scores(q, k, rel, distance)
        if mask is not None:
            bias = _blocked(bias, mask, q.dtype)
            # A padded query attends to everything alike, without a gradient, as in the reference.
            q = q.masked_fill(~_is_real(mask), 0)
        return self.attend(q, k, v, bias, self._scale)

    def _position_scores(
        self, q: Tensor, k: Tensor, rel: Tensor, distance: Tensor
    ) -> Tensor | None:
        rel = functional.dropout(rel, self._p_table, self.training)
        shape = (*q.shape[:2], *distance.shape)
        total = None
        if self._content_to_position:
            keys = self._of_positions(self._position_key(self), rel)
            scores = (q * self._scale) @ keys.transpose(-1, -2)
            total = scores.gather(-1, distance.expand(shape))
        if self._position_to_content:
            queries = self._of_positions(self._position_query(self), rel)
            scores = (k * self._scale) @ queries.transpose(-1, -2)
            part = scores.gather(-1, distance.t().expand(shape)).transpose(-1, -2)
            total = part if total is None else total + part
        return total

    def _of_positions(self, projection: nn.Module, rel: Tensor) -> Tensor:
        """Return ``[heads, R, d]``, the same for all rows of a batch."""
        projected: Tensor = projection(rel)
        return projected.view(len(rel), self.heads, -1).transpose(0, 1)


def _is_real(mask: Tensor) -> Tensor:
    """Return which tokens are real, ``[B, 1, S, 1]``, of a mask of pairs."""
    return mask.diagonal(dim1=-2, dim2=-1)[..., None]


def _blocked(bias: Tensor | None, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a bias that keeps pairs with padding apart.

    Filled, not added: a sum could leave half precision's range. A padded query gets zeros: its
    scores are alike then, too, and fused kernels divide by their number in the backward pass,
    which the logarithm of a sum near the smallest number would lose.
    """
    if bias is None:
        bias = torch.zeros((), dtype=dtype, device=mask.device)
    fill = _is_real(mask).to(bias.dtype) * torch.finfo(bias.dtype).min
    return torch.where(mask, bias, fill)


class Convolution(nn.Module):
    """A convolution over the embeddings, added to what the first layer gave."""

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.conv_kernel_size
        self._act = activation(config.conv_act)
        self.conv = nn.Conv1d(
            hidden, hidden, size, padding=(size - 1) // 2, groups=config.conv_groups
        )
        self.LayerNorm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, x: Tensor, embeddings: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Return ``[B, S, H]`` from the first layer's output and the embeddings."""
        out: Tensor = self.conv(embeddings.transpose(1, 2)).transpose(1, 2)
        mask = prepare_mask(attention_mask)
        real = None if mask is None else mask[:, 0, 0, :, None]
        if real is not None:
            out = out.masked_fill(~real, 0)
        out = self.LayerNorm(x + self._act(self.dropout(out)))
        return out if real is None else out * real.to(out.dtype)
