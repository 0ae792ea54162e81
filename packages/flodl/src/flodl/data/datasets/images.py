"""Pixels as the parsers give them: raw, in [0, 1], or standardized per channel."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from flodl.core.errors import ConfigError

Normalize: TypeAlias = Literal["unit", "none", "standard"]


def normalized(
    pixels_nchw: Tensor,
    how: Normalize,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Tensor:
    """Return uint8 pixels as they are, as float32 in [0, 1], or minus the mean over the deviation.

    Raises:
        ConfigError: Another word for ``how``.
    """
    if how == "none":
        return pixels_nchw
    if how not in {"unit", "standard"}:
        raise ConfigError(f'normalize={how!r}: expected "unit", "none" or "standard"')
    scaled = pixels_nchw.to(torch.float32).div_(255)
    if how == "unit":
        return scaled
    shift, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return scaled.sub_(shift).div_(scale)
