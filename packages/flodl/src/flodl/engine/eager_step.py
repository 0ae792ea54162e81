"""Steps on a GPU that are not replays: warm-up, fallback, and the one that is looked at closely."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from flodl.data import Batch
from flodl.engine.body import Metrics, StepBody, StepScope, number_recorded
from flodl.engine.capture import Part, row_of
from flodl.engine.config import TrainStepFn
from flodl.engine.effects import SideEffects
from flodl.engine.fallback import CaptureReason, ReasonCode
from flodl.engine.guards import code_of_optimizer
from flodl.engine.inspection import (
    StepInspector,
    numpy_random_watched,
    python_calls_watched,
    storage_address,
)
from flodl.engine.watched import WatchedBatch


def _of_the_scaler(reason: CaptureReason) -> CaptureReason:
    if reason.code is not ReasonCode.HOST_SYNC:
        return reason
    return replace(
        reason,
        code=ReasonCode.SCALER_SYNCS,
        hint="use flodl.nn.GradScaler with an optimizer of flodl.optim",
    )


def _side_effect(changed: str) -> CaptureReason:
    return CaptureReason.of(ReasonCode.HOOK_SIDE_EFFECT, f"the step changes {changed}")


def _about_batch(batch: Batch, written: Mapping[int, Tensor]) -> list[CaptureReason]:
    """Return what a replay, which has a batch of its own, would not do to the caller's."""
    code = ReasonCode.HOOK_SIDE_EFFECT
    found = []
    for name, tensor in batch.as_dict().items():
        if tensor.requires_grad:
            message = f"the tensor {name!r} of the batch collects a gradient"
            found.append(CaptureReason.of(code, message))
        if storage_address(tensor) in written:
            message = f"the step writes into its batch, the tensor {name!r}"
            hint = "work on a copy: batch.clone()"
            found.append(CaptureReason.of(code, message, hint=hint))
    return found


class EagerStep:
    """Takes eager steps.

    Args:
        body: What a step computes.
        step_fn: The step function as the user wrote it.
        device: The GPU.
        generators: Random generators that the step uses besides the default one.
        exchanges: Whether gradients are exchanged before the update.
    """

    def __init__(
        self,
        body: StepBody,
        step_fn: TrainStepFn,
        device: torch.device,
        generators: Sequence[torch.Generator],
        *,
        exchanges: bool,
    ) -> None:
        self._body = body
        self._step_fn = step_fn
        self._device = device
        self._generators = generators
        self._exchanges = exchanges
        self.scope = StepScope()
        self.written: dict[int, Tensor] = {}
        """Tensors from outside the model that inspected steps wrote, by address."""
        self._host_values: dict[int, tuple[Tensor, int]] = {}
        self._knows_update = False

    @property
    def must_look_again(self) -> bool:
        """Whether code of the user in the optimizer's step has not been looked at yet.

        The step that makes the optimizer's state is not like those that follow.
        """
        return not self._knows_update and bool(code_of_optimizer(self._body.optimizer))

    def has_host_value_changed(self) -> bool:
        """Return whether a tensor of the host that inspected steps used was written since."""
        return any(tensor._version != version for tensor, version in self._host_values.values())  # noqa: SLF001 - torch has no public name for it

    def accept_host_values(self) -> None:
        """Take the present values for those that the next recordings have in them."""
        for key, (tensor, _) in self._host_values.items():
            self._host_values[key] = (tensor, tensor._version)  # noqa: SLF001 - as above

    def take(self, batch: Batch, part: Part) -> tuple[tuple[str, ...], Tensor]:
        """Take a step; return names and values of what it reports."""
        loss, metrics = self._forward_backward(batch, part)
        norm = self._body.end_window() if part.ends else None
        return self._row(loss, norm, metrics)

    def inspect(
        self,
        batch: Batch,
        part: Part,
        found: Callable[[list[CaptureReason]], None],
        *,
        borrowed: bool,
    ) -> tuple[tuple[str, ...], Tensor]:
        """Take a step while looking for what a graph could not repeat.

        Args:
            batch: The batch.
            part: Which part of an accumulation window it is.
            found: Called with the reasons against a capture, when there are any.
            borrowed: Whether the batch's tensors are the caller's own.
        """
        inspector = StepInspector(self._device, self._generators)
        reasons = inspector.reasons
        # what torch.compile made does not work while each operation is looked at
        looks_closely = not self._is_compiled()
        effects = SideEffects(self._step_fn, self._body.model, self._device)
        with contextlib.ExitStack() as watching:
            if looks_closely:
                watching.enter_context(inspector)
            watching.enter_context(python_calls_watched(reasons))
            watching.enter_context(numpy_random_watched(reasons))
            loss, metrics = self._forward_backward(WatchedBatch(batch, reasons), part)
        changed = effects.found(inspector.read if looks_closely else None)
        if changed is not None:
            reasons.append(_side_effect(changed))
        numbers = [name for name, value in metrics if not isinstance(value, Tensor)]
        reasons += [number_recorded(name) for name in numbers]
        if borrowed:
            reasons += _about_batch(batch, inspector.written)
        inspector.in_update = True
        norm = self._inspected_update(inspector, looks_closely) if part.ends else None
        self.written.update(inspector.written)
        self._host_values |= {id(tensor): (tensor, v) for tensor, v in inspector.host_values}
        if reasons:
            found(reasons)
        return self._row(loss, norm, metrics)

    def _inspected_update(self, inspector: StepInspector, looks_closely: bool) -> Tensor | None:
        body = self._body
        look = partial(self._update_looked_at, inspector) if looks_closely else body.end_window
        optimizer = body.optimizer
        code, states = code_of_optimizer(optimizer), len(optimizer.state)
        if not code:
            return look()
        effects = SideEffects(code[-1], body.model, self._device, code)
        norm = look()
        self._knows_update = len(optimizer.state) == states
        changed = effects.found(None)
        if self._knows_update and changed is not None:
            inspector.reasons.append(replace(_side_effect(changed), in_update=True))
        return norm

    def _update_looked_at(self, inspector: StepInspector) -> Tensor | None:
        if self._exchanges:
            return self._body.end_window()  # what other ranks give is no read of this one's
        # a scaler asks the host as long as the optimizer has no state, and only then
        if not self._body.has_optimizer_state():
            return self._body.update()
        known = len(inspector.reasons)
        with inspector:
            norm = self._body.update()
        if self._body.scaler is not None:
            inspector.reasons[known:] = map(_of_the_scaler, inspector.reasons[known:])
        return norm

    def _forward_backward(self, batch: Batch, part: Part) -> tuple[Tensor, Metrics]:
        with self.scope.active():
            loss, returned = self._body.split.forward_backward(batch, starts_window=part.starts)
        return loss, self.scope.take(returned)

    def _is_compiled(self) -> bool:
        """Return whether code of torch.compile runs, which does not work while looking on."""
        return self._body.is_compiled or any(
            getattr(module, "_compiled_call_impl", None) is not None
            or type(module).__name__ == "OptimizedModule"
            for module in self._body.model.modules()
        )

    def _row(
        self, loss: Tensor, norm: Tensor | None, metrics: Metrics
    ) -> tuple[tuple[str, ...], Tensor]:
        return row_of(loss, norm, [(name, self._on_device(value)) for name, value in metrics])

    def _on_device(self, value: Tensor | float) -> Tensor:
        if isinstance(value, Tensor):
            return value.to(self._device, non_blocking=True)
        return torch.full((), value, dtype=torch.float32, device=self._device)
