"""Skipping an optimizer step whose loss or gradients are not finite, without asking the host."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class NonFiniteGuard:
    """Notes on the device whether losses and gradients are finite, and steps only if they are.

    Args:
        optimizer: The optimizer.
        device: Where its parameters are.
        skips: Whether steps are skipped.
        counts: Whether losses that are not finite are counted.
        asks_host: Whether the host decides.
        in_kernel: Whether the optimizer's kernels can skip by themselves.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        *,
        skips: bool,
        counts: bool,
        asks_host: bool,
        in_kernel: bool,
    ) -> None:
        self._optimizer = optimizer
        self._asks_host = asks_host
        self.skips = skips
        self._in_kernel = in_kernel
        self.bad_batches = torch.zeros((), device=device) if counts else None
        """Batches so far whose loss was NaN or infinite, 0-d on the device, in one place."""
        self._losses = torch.zeros((), device=device) if skips else None

    def tensors(self) -> list[Tensor]:
        """Return the tensors that a step changes."""
        return [tensor for tensor in (self.bad_batches, self._losses) if tensor is not None]

    def saw(self, loss: Tensor, *, starts_window: bool) -> None:
        """Take note of the loss of a batch."""
        if self.bad_batches is not None:
            self.bad_batches.add_((loss - loss) != 0)  # NaN for what is not finite
        if self._losses is not None:
            self._losses.copy_(loss) if starts_window else self._losses.add_(loss)

    def found(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return 1.0 where a loss of the window or a gradient is NaN or infinite, else 0.0; 0-d.

        A whole flat buffer may be given; a flag in it that other ranks set counts as well.
        """
        assert self._losses is not None
        extremes = [extreme.float() for extreme in _extremes(gradients)]
        probe = torch.stack([self._losses, *extremes])
        return ((probe - probe).sum() != 0).float()

    def step(self, found: Tensor) -> None:
        """Take the optimizer's step unless ``found`` is above 0."""
        optimizer = self._optimizer
        if self._asks_host or self.lacks_state():
            if not found.item():
                optimizer.step()
        elif self._in_kernel:
            optimizer.found_inf = found  # type: ignore[attr-defined] # how torch's kernels are told
            optimizer.grad_scale = None  # type: ignore[attr-defined] # as above
            try:
                optimizer.step()
            finally:
                del optimizer.found_inf, optimizer.grad_scale  # type: ignore[attr-defined] # as above
        else:
            self.masked_step(found > 0)

    def masked_step(self, found: Tensor) -> None:
        """Step, and put everything back where ``found`` is true; the host asks nothing."""
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        changing: list[Tensor] = [p for p in parameters if p.grad is not None]
        changing += optimizer_tensors(self._optimizer)
        before = [tensor.detach().clone() for tensor in changing]
        self._optimizer.step()
        with torch.no_grad():
            for tensor, old in zip(changing, before, strict=True):
                tensor.copy_(torch.where(found, old, tensor))

    def lacks_state(self) -> bool:
        """Return whether the optimizer makes state at the next step.

        Then the host decides: torch's kernels may leave new state unwritten when they skip, and
        there is nothing to put back.
        """
        optimizer = self._optimizer
        if isinstance(optimizer, torch.optim.SGD) and not any(
            group["momentum"] for group in optimizer.param_groups
        ):
            return False
        return any(
            p.grad is not None and not optimizer.state.get(p)
            for group in optimizer.param_groups
            for p in group["params"]
        )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of an optimizer's state."""
    return [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]


def _extremes(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return values that are all finite where all gradients are; each is 0-d."""
    dense = [gradient for gradient in gradients if gradient.numel()]
    if not dense:
        return []
    if all(gradient.device.type == "cpu" and _is_ordered(gradient) for gradient in dense):
        # 20 times as fast there as the norm, and as true: NaN is the least and the largest
        return [extreme for gradient in dense for extreme in torch.aminmax(gradient)]
    return list(torch._foreach_norm(dense, math.inf))  # noqa: SLF001 - torch has no public name


def _is_ordered(gradient: Tensor) -> bool:
    """Return whether a gradient has a least value: dense and real."""
    return gradient.is_floating_point() and gradient.layout is torch.strided
