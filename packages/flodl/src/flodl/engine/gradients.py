"""Gradients in memory that keeps its place: flat buffers, ready to be exchanged between ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from flodl.core.errors import StepContractError

_ALIGNMENT_BYTES = 64


class GradientReducer(Protocol):
    """Exchanges gradients between ranks, between the two graphs of a step."""

    def __call__(self, gradients: FlatGradients) -> None:
        """Replace ``gradients.buckets`` by their mean over all ranks, in place.

        Called once for each optimizer step, after the last backward of the window and before
        clipping. What it launches goes to the current stream, or is done when it returns. What it
        raises ends the step: no parameter is changed, and the next batch begins a new window.
        """
        ...


class FlatGradients:
    """The gradients of all parameters that have one, as views of one flat buffer for each dtype.

    ``buckets`` keep their place for as long as the object lives; another set of parameters, after
    freezing for instance, means another object. A parameter that took no part in a step has a
    gradient of zeros.

    Args:
        parameters: Those of the optimizer; the ones without a gradient are left out.
        names: Names of parameters, by ``id``.

    Raises:
        StepContractError: A gradient is sparse.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], names: Mapping[int, str]) -> None:
        by_dtype: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in parameters:
            if parameter.grad is None or not parameter.requires_grad:
                continue
            if parameter.grad.layout is not torch.strided:
                raise StepContractError(
                    f"parameter {names.get(id(parameter), '?')!r} has a sparse gradient, which has "
                    "no place of its own",
                    hint="build the embedding with sparse=False",
                )
            key = (parameter.grad.dtype, parameter.grad.device)
            by_dtype.setdefault(key, []).append(parameter)
        self.parameters = [p for group in by_dtype.values() for p in group]
        self.names = tuple(
            names.get(id(p), f"parameter {number}") for number, p in enumerate(self.parameters)
        )
        buckets, self._views = [], []
        for (dtype, device), group in by_dtype.items():
            bucket, views = _flat(group, dtype, device)
            buckets.append(bucket)
            self._views += views
        self.buckets: tuple[Tensor, ...] = tuple(buckets)
        """One buffer for each dtype; what lies between the gradients is 0 on all ranks."""
        with torch.no_grad():
            for parameter, view in zip(self.parameters, self._views, strict=True):
                assert parameter.grad is not None
                view.copy_(parameter.grad)
                parameter.grad = view
        self._members = {id(parameter) for parameter in self.parameters}

    @property
    def flag(self) -> Tensor | None:
        """Last element of the first bucket, 0-d: above 0 means that no rank may take this step.

        With ``on_nonfinite="skip"`` it is 1 before the exchange when a loss or gradient of this
        rank is not finite, so that after it all ranks skip together.
        """
        return self.buckets[0][-1] if self.buckets else None

    @property
    def layout(self) -> str:
        """Digest of names, shapes and dtypes in their order: equal on ranks that fit together."""
        text = "\n".join(
            f"{name} {tuple(view.shape)} {view.dtype}"
            for name, view in zip(self.names, self._views, strict=True)
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def fits(self, parameters: Sequence[nn.Parameter]) -> bool:
        """Return whether these are the gradients of exactly the parameters that have one."""
        return all(p.requires_grad for p in self.parameters) and not any(
            p.grad is not None and p.requires_grad and id(p) not in self._members
            for p in parameters
        )

    def repair(self) -> None:
        """Bring gradients that were replaced or set to ``None`` back into their views."""
        for parameter, view in zip(self.parameters, self._views, strict=True):
            if parameter.grad is view:
                continue
            with torch.no_grad():
                view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
            # an optimizer would also move a frozen parameter that has a gradient
            parameter.grad = view if parameter.requires_grad else None

    def clear(self, parameters: Sequence[nn.Parameter]) -> None:
        """Set all gradients to 0, and drop those of parameters that are not in the buffers."""
        for bucket in self.buckets:
            bucket.zero_()
        if len(parameters) > len(self.parameters):
            for parameter in parameters:
                if id(parameter) not in self._members:
                    parameter.grad = None


def _flat(
    group: Sequence[nn.Parameter], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, list[Tensor]]:
    """Return a buffer of zeros with one element to spare at its end, and its parts."""
    step = max(1, _ALIGNMENT_BYTES // dtype.itemsize)
    starts, end = [], 0
    for parameter in group:
        starts.append(end)
        end += -(-parameter.numel() // step) * step
    bucket = torch.zeros(end + step, dtype=dtype, device=device)
    views = []
    for parameter, start in zip(group, starts, strict=True):
        part = bucket[start : start + parameter.numel()]
        # as the parameter lies in memory, channels last for instance: fused kernels rely on it
        if parameter.is_contiguous() or not _is_dense(parameter):
            views.append(part.view(parameter.shape))
        else:
            views.append(part.as_strided(parameter.shape, parameter.stride()))
    return bucket, views


def _is_dense(tensor: Tensor) -> bool:
    """Return whether the elements fill one stretch of memory."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
