"""Attention with one input, so that it fits into a data flow."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Multi-head attention of ``[B, S, E]`` on itself, or on references given with ``using``.

    Args:
        embed_dim: E, a multiple of ``num_heads``.
        num_heads: Number of heads.
        causal: Whether a position sees only itself and those before it.
        dropout: Probability of leaving out an attention weight while training.
        bias: Whether the projections have a bias.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(
                f"SelfAttention({embed_dim}, {num_heads}): embed_dim must be a positive multiple "
                "of num_heads"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"SelfAttention(dropout={dropout}): must be in [0, 1)")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.causal = causal
        self.dropout = dropout
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(
        self,
        x: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return ``[B, S, E]``.

        Args:
            x: ``[B, S, E]``.
            key: ``[B, T, E]`` to attend to; ``x`` itself by default.
            value: ``[B, T, E]`` to gather from; ``key`` by default.
            mask: Boolean, true where a position may be attended to, or added to the scores;
                ``[S, T]``, ``[B, S, T]`` or ``[B, heads, S, T]``.
        """
        self._check(x, "x")
        if key is None and value is None:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
        else:
            key = x if key is None else key
            value = key if value is None else value
            self._check(key, "key")
            self._check(value, "value")
            q, k, v = self._project(x, key, value)
        attended = functional.scaled_dot_product_attention(
            self._split(q),
            self._split(k),
            self._split(v),
            attn_mask=self._full_mask(mask, x.shape[1], k.shape[1], x.device),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal and mask is None,
        )
        result: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return result

    def _project(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        weights = self.qkv.weight.chunk(3)
        bias: Tensor | None = self.qkv.bias
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(
            functional.linear(*parts) for parts in zip(inputs, weights, biases, strict=True)
        )

    def _split(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return heads

    def _full_mask(
        self, mask: Tensor | None, queries: int, keys: int, device: torch.device
    ) -> Tensor | None:
        if mask is None:
            return None
        if mask.dim() == 3:
            mask = mask.unsqueeze(1)
        if not self.causal:
            return mask
        past = torch.ones(queries, keys, dtype=torch.bool, device=device).tril()
        if mask.dtype == torch.bool:
            return mask & past
        return mask.masked_fill(~past, float("-inf"))

    def _check(self, tensor: Tensor, name: str) -> None:
        if tensor.dim() != 3 or tensor.shape[2] != self.embed_dim:
            raise ValueError(
                f"SelfAttention: {name} has shape {list(tensor.shape)}; "
                f"it must be [batch, length, {self.embed_dim}]"
            )

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.embed_dim}, {self.num_heads}, causal={self.causal}, dropout={self.dropout}"
