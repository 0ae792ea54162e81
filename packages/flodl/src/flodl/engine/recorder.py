"""Recording the steps of one model: where gradients and batches lie, and what can be undone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flodl.data import Batch
from flodl.device.gpu_graph import PoolHandle, gpu_graph_pool_handle
from flodl.device.memory import pool_bytes
from flodl.engine.body import StepBody
from flodl.engine.buffers import StaticInputs
from flodl.engine.capture import (
    SPLIT,
    WHOLE,
    Inputs,
    Part,
    Place,
    Program,
    record,
    record_update,
)
from flodl.engine.config import StepConfig
from flodl.engine.eager_step import EagerStep
from flodl.engine.rates import StepRates
from flodl.engine.resident import RowBatch, RowInputs
from flodl.engine.side import SideStream
from flodl.engine.signatures import Signature
from flodl.engine.skipping import optimizer_tensors

_MOST_KEPT_BYTES = 64 << 20


class Recorder:
    """Records steps; nothing that it records is executed.

    Args:
        body: What a step computes.
        config: The step's settings.
        eager: Takes eager steps; it knows what these write outside the model.
        side: The stream of warm-up and capture.
        device: The GPU.
        generators: Random generators that the step uses besides the default one.
    """

    def __init__(
        self,
        body: StepBody,
        config: StepConfig,
        eager: EagerStep,
        side: SideStream,
        device: torch.device,
        generators: Sequence[torch.Generator],
    ) -> None:
        self._body = body
        self._exchanges = config.reduce is not None
        self._pins_gradients = config.accumulate > 1 or self._exchanges
        self._eager = eager
        self._side = side
        self._device = device
        self._generators = generators
        self._pool: PoolHandle | None = None

    def pool_bytes(self) -> int:
        """Return the memory that recordings hold."""
        return 0 if self._pool is None else pool_bytes(self._pool)

    def forget_pool(self) -> None:
        """Begin with new memory at the next recording."""
        self._pool = None

    def waits_for_window(self, part: Part) -> bool:
        """Return whether gradients must first be seen by a whole eager window."""
        if not self._pins_gradients:
            return False
        flat, parameters = self._body.gradients, self._body.parameters
        if flat is not None:
            return not flat.fits(parameters)
        return not (part.starts and any(p.grad is not None for p in parameters))

    def may_split(self, signature: Signature) -> bool:
        """Return whether the update can be a graph of its own, and forward and backward undone."""
        if self._pins_gradients or signature.mode != "captured" or SPLIT in signature.refused:
            return False
        if SPLIT in signature.programs:
            return True
        return sum(t.nbytes for t in self._changed_before_update()) <= _MOST_KEPT_BYTES

    def record(
        self,
        signature: Signature,
        batch: Batch | RowBatch,
        part: Part,
        rates: StepRates | None = None,
    ) -> Program:
        """Record a step, or several.

        Args:
            signature: What it is recorded for.
            batch: The first batch.
            part: Which part of an accumulation window it is.
            rates: Learning rates, where several steps are recorded and a schedule sets them.

        Raises:
            CaptureAbandoned: The step cannot be recorded.
            RuntimeError: What it did cannot be captured.
        """
        body = self._body
        if self._pool is None:
            self._pool = gpu_graph_pool_handle()
        place = Place(self._pool, self._side.stream, self._generators)
        updates = part.ends and signature.mode == "captured"
        known = next(iter(signature.programs.values()), None)
        if part in (WHOLE, SPLIT) and part not in signature.let_go:
            # of the two most loops need one, and each has gradients; who goes to and fro keeps both
            other = SPLIT if part is WHOLE else WHOLE
            if signature.programs.pop(other, None) is not None:
                signature.let_go.add(other)
        self._pin_gradients()
        inputs = known.inputs if known else self._inputs_for(batch)
        inputs.fill(batch)
        if not body.state.is_pinned():
            body.state.pin()
        program = record(
            body,
            self._eager.scope,
            inputs,
            part,
            with_update=updates and not (self._exchanges or part.is_split),
            place=place,
            keep=self._changed_before_update() if part.is_split else (),
            rates=rates,
        )
        if updates and not program.has_update:
            program.update = record_update(body, program, place)
        return program

    def _pin_gradients(self) -> None:
        body = self._body
        if not self._pins_gradients:
            for parameter in body.parameters:
                parameter.grad = None
        elif body.gradients is None:
            body.settle()
            body.drop_window()

    def _inputs_for(self, batch: Batch | RowBatch) -> Inputs:
        if isinstance(batch, RowBatch):
            return RowInputs(batch.source)
        return StaticInputs(batch, self._device)

    def _changed_before_update(self) -> list[Tensor]:
        """Return the tensors that forward and backward change for good."""
        body = self._body
        updated = {t.data_ptr() for t in (*body.parameters, *optimizer_tensors(body.optimizer))}
        found = [
            *body.model.buffers(),
            *body.state.tensors(),
            *body.guard.tensors(),
            *self._eager.written.values(),
        ]
        unique = {t.data_ptr(): t for t in found if t.device == self._device and t.numel()}
        return [tensor for place, tensor in unique.items() if place not in updated]
