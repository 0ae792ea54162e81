"""Losses of the heads: equal to the reference's, finite for every batch, without asking the device.

Logits are upcast to float32. Means are over the positions that count; when none does, the loss is
exactly zero, and so are its gradients.
"""

from __future__ import annotations

import os
from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn import functional

from flodl_hf.errors import HeadError

IGNORED = -100

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


def class_loss(logits: Tensor, labels: Tensor, *, ignored: int = IGNORED) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy and how many labels count.

    Args:
        logits: ``[..., L]``.
        labels: Whole numbers ``[...]``; ``ignored`` does not count.
        ignored: The label that does not count.
    """
    flat, wanted = logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1)
    check_labels(wanted, logits.shape[-1], ignored)
    total = functional.cross_entropy(flat, wanted, ignore_index=ignored, reduction="sum")
    return total, (wanted != ignored).sum()


def soft_class_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross entropy with probabilities ``[B, L]``, and the number of rows."""
    total = -(functional.log_softmax(logits.float(), dim=-1) * labels.float()).sum()
    return total, _count(labels.shape[0], logits)


def multi_label_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed binary cross entropy over ``[B, L]``, and the number of elements."""
    total = functional.binary_cross_entropy_with_logits(
        logits.float(), labels.float(), reduction="sum"
    )
    return total, _count(labels.numel(), logits)


def regression_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed squared error, and the number of elements."""
    total = functional.mse_loss(
        logits.float().reshape(-1), labels.float().reshape(-1), reduction="sum"
    )
    return total, _count(labels.numel(), logits)


def sequence_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    problem_type: str | None = None,
    soft_by_default: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the summed loss of a sequence classifier, and what to divide it by.

    Args:
        logits: ``[B, L]``.
        labels: Whole numbers ``[B]``, or numbers ``[B, L]``.
        problem_type: As in a config; without it one label is a regression, whole numbers choose a
            class, and other numbers are several labels at once.
        soft_by_default: Read ``[B, L]`` as probabilities and leave out negative classes, as
            DeBERTa's reference does when nothing is said.

    Raises:
        HeadError: The labels do not have the shape or the kind that is needed.
    """
    count = logits.shape[-1]
    is_whole = not labels.is_floating_point()
    kind = problem_type
    if kind is None:
        kind = "regression" if count == 1 else "multi_label_classification"
        kind = "single_label_classification" if count > 1 and is_whole else kind
        if kind == "multi_label_classification" and soft_by_default:
            kind = "single_label_classification"
    if kind == "regression":
        check_shape(labels.reshape(-1), (logits.numel(),), "labels of a regression, [B] or [B, L]")
        return regression_loss(logits, labels)
    if kind == "multi_label_classification":
        check_shape(labels, tuple(logits.shape), "labels of several classes at once, [B, L]")
        return multi_label_loss(logits, labels)
    if not is_whole:
        check_shape(labels, tuple(logits.shape), "probabilities of classes, [B, L]")
        return soft_class_loss(logits, labels)
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    check_shape(labels, (logits.shape[0],), "classes, whole numbers [B]")
    if soft_by_default and problem_type is None:
        labels = labels.masked_fill(labels < 0, IGNORED)
    return class_loss(logits, labels)


def token_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed loss over tokens that are not -100, and their number.

    Raises:
        HeadError: ``labels`` is not ``[B, S]`` for logits ``[B, S, L]``.
    """
    check_shape(labels, tuple(logits.shape[:-1]), "labels of tokens, whole numbers [B, S]")
    return class_loss(logits, labels)


def question_loss(logits: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed loss of answer spans, and what to divide it by.

    Positions at or beyond the length do not count; the sum is over starts and ends, and the
    divisor counts each with its own number of rows, as the reference's mean of two means does.

    Args:
        logits: ``[B, S, 2]``.
        starts: First tokens, ``[B]``.
        ends: Last tokens, ``[B]``.

    Raises:
        HeadError: The positions are not ``[B]``.
    """
    batch, length = logits.shape[:2]
    parts = []
    for index, given in enumerate((starts, ends)):
        positions = given[:, 0] if given.dim() == 2 and given.shape[1] == 1 else given
        check_shape(positions, (batch,), "positions of tokens, whole numbers [B]")
        clamped = positions.clamp(0, length)
        total = functional.cross_entropy(
            logits[..., index].float(), clamped, ignore_index=length, reduction="sum"
        )
        count = (clamped != length).sum()
        parts.append((total, count))
    mean = sum((mean_of(total, count) for total, count in parts), logits.new_zeros(())) / 2
    counted = torch.maximum(parts[0][1], parts[1][1])
    return mean.float() * counted.clamp(min=1), counted


def mean_of(total: Tensor, count: Tensor) -> Tensor:
    """Return a sum divided by its count; exactly zero when nothing counts."""
    return total / count.clamp(min=1)


Reduction = Literal["mean", "sum"]


@overload
def reduced(loss: tuple[Tensor, Tensor], reduction: Literal["mean"]) -> Tensor: ...
@overload
def reduced(loss: tuple[Tensor, Tensor], reduction: Literal["sum"]) -> tuple[Tensor, Tensor]: ...
@overload
def reduced(
    loss: tuple[Tensor, Tensor], reduction: Reduction
) -> Tensor | tuple[Tensor, Tensor]: ...
def reduced(loss: tuple[Tensor, Tensor], reduction: Reduction) -> Tensor | tuple[Tensor, Tensor]:
    """Return the mean, or sum and count, which several batches or ranks can add up."""
    return loss if reduction == "sum" else mean_of(*loss)


def check_shape(labels: Tensor, shape: tuple[int, ...], what: str) -> None:
    """Refuse labels of another shape.

    Raises:
        HeadError: Names the shape that is needed.
    """
    if tuple(labels.shape) != shape:
        raise HeadError(
            f"labels have shape {list(labels.shape)}: expected {what}, here {list(shape)}"
        )


def check_labels(labels: Tensor, count: int, ignored: int) -> None:
    """Refuse a label outside the classes; on a GPU only when ``FLODL_HF_CHECK=1``.

    There it would cost waiting for the device.

    Raises:
        HeadError: Names the label and its place.
    """
    if labels.is_floating_point():
        raise HeadError(f"labels are {labels.dtype}: expected whole numbers")
    is_checked = labels.device.type == "cpu" or os.environ.get("FLODL_HF_CHECK") == "1"
    if not is_checked or torch.compiler.is_compiling():
        return
    wrong = ((labels < 0) | (labels >= count)) & (labels != ignored)
    if bool(wrong.any()):
        at = int(wrong.nonzero()[0])
        raise HeadError(
            f"label {int(labels[at])} at position {at}: there are {count} classes, 0 to "
            f"{count - 1}, and {ignored} for none",
            hint="load with num_labels= and new_head=True for other classes",
        )


def _count(number: int, like: Tensor) -> Tensor:
    return torch.full((), number, dtype=torch.long, device=like.device)
