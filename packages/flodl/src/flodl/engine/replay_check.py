"""Comparing the replays of a recorded step with the eager step, on everything that it changes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from flodl.device.gpu_graph import RandomState
from flodl.engine.body import StepBody
from flodl.engine.capture import Program
from flodl.engine.eager_step import EagerStep
from flodl.engine.side import SideStream
from flodl.engine.skipping import optimizer_tensors
from flodl.engine.switches import rounds_float32
from flodl.engine.verify import Mismatch, NamedTensor, Tolerance, check_replay

_logger = logging.getLogger(__name__)


class ReplayCheck:
    """Compares; afterwards everything is as it was before.

    Args:
        body: What a step computes.
        eager: Takes eager steps.
        side: The stream for these.
        device: The GPU.
        generators: Random generators that the step uses besides the default one.
        is_low_precision: Whether forward and backward run under autocast.
    """

    def __init__(
        self,
        body: StepBody,
        eager: EagerStep,
        side: SideStream,
        device: torch.device,
        generators: Sequence[torch.Generator],
        *,
        is_low_precision: bool,
    ) -> None:
        self._body = body
        self._eager = eager
        self._side = side
        self._device = device
        self._generators = generators
        self._is_low_precision = is_low_precision

    def __call__(self, program: Program, title: str) -> Mismatch | None:
        """Return where replays differ from eager steps, ``None`` if they do not.

        Without an answer, and with a message, when there is no memory for it.
        """
        tensors = self._changing(program)
        needed = 3 * sum(tensor.nbytes for _, tensor in tensors)
        free = torch.cuda.mem_get_info(self._device)[0]
        if needed > free / 4:
            _logger.info(
                "capture: the first replay of %s is not compared with an eager step: that takes "
                "%d bytes and %d are free",
                title,
                needed,
                free,
            )
            return None
        body = self._body

        def replayed() -> list[NamedTensor]:
            program.inputs.again()
            program.graph.replay()
            program.show()
            if program.update is not None:
                program.update.graph.replay()
            return _computed(program, program.loss)

        def eagerly() -> list[NamedTensor]:
            program.inputs.again()
            with self._side.entered(), self._eager.scope.active():
                for step in range(program.part.steps):
                    if program.rates is not None:
                        program.rates.use(step)
                    loss, returned = body.forward_backward(
                        program.inputs.read(), starts_window=program.part.starts
                    )
                    self._eager.scope.take(returned)
                    if program.updates:
                        body.flag()
                        body.update()
            return _computed(program, loss)

        random = RandomState(self._device, self._generators)
        found = check_replay(replayed, eagerly, tensors, random, self._tolerance())
        program.inputs.again()
        torch.cuda.empty_cache()
        return found

    def _tolerance(self) -> Tolerance:
        low = self._is_low_precision or rounds_float32()
        low = low or any(
            p.dtype in (torch.float16, torch.bfloat16) for p in self._body.model.parameters()
        )
        return Tolerance.of(is_low_precision=low)

    def _changing(self, program: Program) -> list[NamedTensor]:
        """Return everything that a step may change, once each."""
        body, scaler = self._body, self._body.scaler
        named: list[NamedTensor] = [
            *body.model.named_parameters(),
            *body.model.named_buffers(),
        ]
        others: dict[str, Sequence[Tensor]] = {
            "parameter of the optimizer": body.parameters,
            "optimizer state": optimizer_tensors(body.optimizer),
            "gradient buffer": [] if body.gradients is None else list(body.gradients.buckets),
            "state cell": body.state.tensors(),
            "count of losses": body.guard.tensors(),
            "input": program.inputs.tensors(),
            "gradient scale": [
                value
                for value in ({} if scaler is None else vars(scaler)).values()
                if isinstance(value, Tensor)
            ],
            "tensor from outside the model": list(self._eager.written.values()),
        }
        for title, tensors in others.items():
            named += [(f"{title} {number}", t) for number, t in enumerate(tensors)]
        unique: dict[int, NamedTensor] = {}
        for name, tensor in named:
            if tensor.device.type == self._device.type and tensor.numel():
                unique.setdefault(tensor.data_ptr(), (name, tensor))
        return list(unique.values())


def _computed(program: Program, loss: Tensor) -> list[NamedTensor]:
    """Return the loss, and gradients where these are what a replay is for."""
    gradients = [] if program.updates else program.gradients
    return [("the loss", loss)] + [
        (f"gradient {number}", p.grad)
        for number, (p, _) in enumerate(gradients)
        if p.grad is not None
    ]
