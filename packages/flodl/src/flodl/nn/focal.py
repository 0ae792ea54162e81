"""Focal losses, which torch lacks.

Lin, Goyal, Girshick, He, Dollár: Focal Loss for Dense Object Detection, 2017.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Reduction = Literal["mean", "sum", "none"]


def focal_loss(
    logits: Tensor,
    target: Tensor,
    alpha: float | Tensor | None = 0.25,
    gamma: float = 2.0,
    *,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
) -> Tensor:
    """Return ``-alpha * (1 - p) ** gamma * log p``, with ``p`` the probability of the true class.

    With ``gamma=0`` it is ``alpha`` times the cross entropy.

    Args:
        logits: ``[N, C]`` or ``[N, C, d…]``.
        target: Class indices, int64, ``[N]`` or ``[N, d…]``. Their range is checked on the CPU;
            on a GPU the kernel's own assertion stops a wrong one.
        alpha: A factor, a weight for each class ``[C]``, or ``None`` for 1.
        gamma: How much well-classified samples count less; not negative.
        reduction: ``"mean"`` over the targets that are not ignored, ``"sum"`` or ``"none"``.
        ignore_index: Targets of this value count nothing.

    Raises:
        ValueError: A shape, a class or a setting is impossible.
        TypeError: The target is not int64.
    """
    _check_settings(gamma, reduction)
    _check_target(logits, target, ignore_index)
    if isinstance(alpha, Tensor) and alpha.shape != (logits.shape[1],):
        raise ValueError(
            f"focal_loss: alpha has shape {list(alpha.shape)}; "
            f"for {logits.shape[1]} classes it must be [{logits.shape[1]}]"
        )
    if gamma == 0 and not isinstance(alpha, Tensor):
        plain = functional.cross_entropy(
            logits, target, reduction=reduction, ignore_index=ignore_index
        )
        return plain if alpha is None else alpha * plain
    counted = target != ignore_index
    index = torch.where(counted, target, 0)
    log_p = functional.log_softmax(logits, dim=1).gather(1, index.unsqueeze(1)).squeeze(1)
    loss = -_modulation(-torch.expm1(log_p), gamma) * log_p
    if isinstance(alpha, Tensor):
        loss = loss * alpha.to(loss)[index]
    elif alpha is not None:
        loss = loss * alpha
    loss = torch.where(counted, loss, 0.0)
    return loss.sum() / counted.sum() if reduction == "mean" else _reduced(loss, reduction)


def sigmoid_focal_loss(
    logits: Tensor,
    target: Tensor,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the focal loss of independent yes-or-no decisions.

    Args:
        logits: Any shape.
        target: Probabilities of yes, usually 0 or 1, of the same shape.
        alpha: Weight of yes, with ``1 - alpha`` for no; ``None`` weighs both with 1.
        gamma: How much well-classified decisions count less; not negative.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """
    _check_settings(gamma, reduction)
    if logits.shape != target.shape:
        raise ValueError(
            f"sigmoid_focal_loss: logits have shape {list(logits.shape)}, "
            f"target {list(target.shape)}; they must be equal"
        )
    target = target.to(logits.dtype)
    # 1 - p without cancellation: each sigmoid is exact at its own small end.
    missed = torch.sigmoid(logits) * (1 - target) + torch.sigmoid(-logits) * target
    loss = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    loss = loss * _modulation(missed, gamma)
    if alpha is not None:
        loss = loss * (alpha * target + (1 - alpha) * (1 - target))
    return loss.mean() if reduction == "mean" else _reduced(loss, reduction)


class FocalLoss(nn.Module):
    """:func:`focal_loss` as a module; class weights are a buffer and move with it."""

    alpha: float | Tensor | None

    def __init__(
        self,
        alpha: float | Tensor | None = 0.25,
        gamma: float = 2.0,
        *,
        reduction: Reduction = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        _check_settings(gamma, reduction)
        if isinstance(alpha, Tensor):
            self.register_buffer("alpha", alpha)
        else:
            self.alpha = alpha
        self.gamma = gamma
        self.reduction: Reduction = reduction
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``logits`` ``[N, C, d…]`` for class indices ``[N, d…]``."""
        return focal_loss(
            logits,
            target,
            self.alpha,
            self.gamma,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
        )

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"alpha={self.alpha}, gamma={self.gamma}, reduction={self.reduction!r}"


def _modulation(missed: Tensor, gamma: float) -> Tensor:
    # At p = 1 the derivative of missed ** gamma is infinite for gamma < 1, so stop short of it.
    return missed.clamp(min=torch.finfo(missed.dtype).eps) ** gamma


def _reduced(loss: Tensor, reduction: Reduction) -> Tensor:
    return loss.sum() if reduction == "sum" else loss


def _check_settings(gamma: float, reduction: str) -> None:
    if not 0 <= gamma < math.inf:
        raise ValueError(f"gamma={gamma!r}: must be finite and not negative")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction={reduction!r}: must be "mean", "sum" or "none"')


def _check_target(logits: Tensor, target: Tensor, ignore_index: int) -> None:
    if target.dtype != torch.int64:
        raise TypeError(f"focal_loss: target is {target.dtype}; class indices are torch.int64")
    if logits.dim() < 2 or target.shape != (logits.shape[0], *logits.shape[2:]):
        raise ValueError(
            f"focal_loss: logits {list(logits.shape)} and target {list(target.shape)} do not fit; "
            "they are [N, C, d…] and [N, d…]"
        )
    if target.device.type != "cpu":
        return
    classes = target[target != ignore_index]
    if classes.numel() and not (classes.min() >= 0 and classes.max() < logits.shape[1]):
        raise ValueError(
            f"focal_loss: target has classes {int(classes.min())} to {int(classes.max())}; "
            f"the logits have {logits.shape[1]} classes, and {ignore_index} is ignored"
        )
