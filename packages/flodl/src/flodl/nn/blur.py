"""Gaussian blur of images."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

PaddingMode = Literal["zeros", "reflect"]


def gaussian_blur_2d(
    x: Tensor, sigma: float, *, padding_mode: PaddingMode = "zeros", detach: bool = False
) -> Tensor:
    """Return images blurred with a normalized Gaussian of ``2 * ceil(3 * sigma) + 1`` pixels.

    Rows and columns are blurred one after the other, each channel alone; the result is
    differentiable in ``x``.

    Args:
        x: ``[B, C, H, W]``, floating.
        sigma: Standard deviation in pixels, positive.
        padding_mode: What lies beyond the border: zeros, or the image mirrored.
        detach: Whether to cut the gradient.

    Raises:
        ValueError: ``sigma`` is not positive, the shape is another, or the image is too small to
            be mirrored that far.
        TypeError: ``x`` is not floating.
    """
    _check_settings(sigma, padding_mode)
    if x.dim() != 4:
        raise ValueError(f"gaussian_blur_2d: input has shape {list(x.shape)}; it is [B, C, H, W]")
    if not x.is_floating_point():
        raise TypeError(f"gaussian_blur_2d: input is {x.dtype}; it must be floating")
    radius = math.ceil(3 * sigma)
    if padding_mode == "reflect" and radius >= min(x.shape[2:]):
        raise ValueError(
            f"gaussian_blur_2d: a radius of {radius} pixels cannot be mirrored in an image of "
            f'{x.shape[2]} by {x.shape[3]}; lower sigma or use padding_mode="zeros"'
        )
    x = x.detach() if detach else x
    kernel = _kernel(sigma, radius, x)
    channels = x.shape[1]
    if padding_mode == "reflect":
        x = functional.pad(x, (radius,) * 4, mode="reflect")
    padding = radius if padding_mode == "zeros" else 0
    rows = kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
    columns = kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1)
    x = functional.conv2d(x, rows, padding=(0, padding), groups=channels)
    return functional.conv2d(x, columns, padding=(padding, 0), groups=channels)


def _kernel(sigma: float, radius: int, like: Tensor) -> Tensor:
    # Made on the device, so that it needs no copy from the host and may be captured.
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    offsets = torch.arange(-radius, radius + 1, device=like.device, dtype=wide)
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2)
    return (weights / weights.sum()).to(like.dtype)


def _check_settings(sigma: float, padding_mode: str) -> None:
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma={sigma!r}: must be finite and positive")
    if padding_mode not in ("zeros", "reflect"):
        raise ValueError(f'padding_mode={padding_mode!r}: must be "zeros" or "reflect"')


class GaussianBlur(nn.Module):
    """:func:`gaussian_blur_2d` as a module without parameters."""

    def __init__(
        self, sigma: float, *, padding_mode: PaddingMode = "zeros", detach: bool = False
    ) -> None:
        super().__init__()
        _check_settings(sigma, padding_mode)
        self.sigma = sigma
        self.padding_mode: PaddingMode = padding_mode
        self.detach = detach

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, ``[B, C, H, W]``, blurred."""
        return gaussian_blur_2d(x, self.sigma, padding_mode=self.padding_mode, detach=self.detach)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"sigma={self.sigma}, padding_mode={self.padding_mode!r}, detach={self.detach}"
