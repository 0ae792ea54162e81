"""Attention masks in the one form that layers take."""

from __future__ import annotations

from torch import Tensor, nn

from flodl_hf.errors import HeadError


def prepare_mask(mask: Tensor | None) -> Tensor | None:
    """Return a mask as bool ``[B, 1, 1, S]``, True where a token may be attended to.

    Args:
        mask: ``[B, S]`` of 0 and 1 in any dtype; or ``[B, 1, 1, S]``, bool, which is returned as
            it is; or ``None`` for no padding.

    Raises:
        HeadError: It has another shape.
    """
    if mask is None:
        return None
    if mask.dim() == 4 and mask.shape[1:3] == (1, 1):
        return mask.bool()
    if mask.dim() != 2:
        raise HeadError(
            f"attention_mask has shape {list(mask.shape)}: expected [B, S], or [B, 1, 1, S]"
        )
    return mask.bool()[:, None, None, :]


class PrepareMask(nn.Module):
    """Makes the mask of a batch once, for all layers."""

    def forward(self, _input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor | None:
        """Return ``attention_mask`` as bool ``[B, 1, 1, S]``, or ``None``."""
        return prepare_mask(attention_mask)
