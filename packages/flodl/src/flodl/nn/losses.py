"""torch's loss functions under flodl's names; each takes torch's keyword arguments."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

mse_loss = functional.mse_loss
l1_loss = functional.l1_loss
cross_entropy_loss = functional.cross_entropy
nll_loss = functional.nll_loss
bce_loss = functional.binary_cross_entropy
bce_with_logits_loss = functional.binary_cross_entropy_with_logits
triplet_margin_loss = functional.triplet_margin_loss
cosine_embedding_loss = functional.cosine_embedding_loss
hinge_embedding_loss = functional.hinge_embedding_loss
margin_ranking_loss = functional.margin_ranking_loss
poisson_nll_loss = functional.poisson_nll_loss


def smooth_l1_loss(input: Tensor, target: Tensor, beta: float = 1.0, **kwargs: Any) -> Tensor:  # noqa: A002 - torch's name
    """Return torch's smooth L1 loss, quadratic below ``beta``, which must be positive.

    Raises:
        ValueError: ``beta`` is not positive; zero is :func:`l1_loss`.
    """
    if not beta > 0:
        raise ValueError(f"smooth_l1_loss(beta={beta!r}): must be positive; for 0 use l1_loss")
    return functional.smooth_l1_loss(input, target, beta=beta, **kwargs)


def kl_div_loss(
    input: Tensor,  # noqa: A002 - torch's name
    target: Tensor,
    *,
    reduction: str = "batchmean",
    log_target: bool = False,
) -> Tensor:
    """Return the Kullback-Leibler divergence of log-probabilities ``input`` from ``target``.

    By default the mean over the batch, which is the mathematical value; torch's own default
    divides by every element.
    """
    return functional.kl_div(input, target, reduction=reduction, log_target=log_target)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    **kwargs: Any,
) -> Tensor:
    """Return torch's connectionist temporal classification loss.

    On a GPU it may wait for the device, so a step that uses it is not captured.
    """
    return functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, **kwargs)


ctc_loss.flodl_dynamic = True  # type: ignore[attr-defined] # a mark that capture looks for
