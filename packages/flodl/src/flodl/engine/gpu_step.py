"""Steps on a GPU: eager first, then as one recorded graph, or eager for a reason."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from flodl.core.errors import CaptureError, CaptureMismatchError, StaleGraphError
from flodl.data import Batch
from flodl.device.gpu_graph import PoolHandle, RandomState, gpu_graph_pool_handle
from flodl.device.memory import pool_bytes
from flodl.engine.body import Metrics, StepBody, StepScope, number_recorded, optimizer_tensors
from flodl.engine.buffers import StaticInputs, describe, key_of
from flodl.engine.capture import Part, Place, Program, record, row_of, with_norm
from flodl.engine.config import CaptureConfig, StepConfig, TrainStepFn
from flodl.engine.effects import SideEffects
from flodl.engine.fallback import CaptureReason, Mode, ReasonCode, announce, reason_of
from flodl.engine.guards import CapturedState
from flodl.engine.inspection import StepInspector, numpy_random_state, python_random_watched
from flodl.engine.output import LazyScalar, StepOutput
from flodl.engine.ring import MetricRing
from flodl.engine.signatures import SampledClock, Signature
from flodl.engine.verify import NamedTensor, Tolerance, check_replay
from flodl.optim.capture import CaptureSupport

_logger = logging.getLogger(__name__)
_MOST_CHANGES_IN_A_ROW = 3


class GpuStep:
    """Takes steps on one GPU in the highest mode that each signature allows.

    Args:
        body: What a step computes.
        step_fn: The step function as the user wrote it.
        config: The step's settings.
        support: What a graph can do with the optimizer.
        device: The GPU.
        generators: Random generators that the step uses besides the default one.
    """

    def __init__(
        self,
        body: StepBody,
        step_fn: TrainStepFn,
        config: StepConfig,
        support: CaptureSupport,
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        self._body = body
        self._step_fn = step_fn
        self._model = body.model
        self._config = config
        self._support = support
        self._device = device
        self._generators = generators
        self._scope = StepScope()
        self.ring = MetricRing(device, config.capture.metrics_ring)
        self._side: torch.cuda.Stream | None = None
        self._pool: PoolHandle | None = None
        self._state: CapturedState | None = None
        self._signatures: dict[Hashable, Signature] = {}
        self._main_rows = 0
        self._outside: dict[int, Tensor] = {}
        self._host_values: list[tuple[Tensor, int]] = []
        self.counts: dict[Mode, int] = {"captured": 0, "captured-fwd-bwd": 0, "eager": 0}
        self.captures = 0
        self.recaptures: list[str] = []
        self._last: Signature | None = None
        self._overflow_told = False
        self._clock = SampledClock()

    @property
    def _capture(self) -> CaptureConfig:
        return self._config.capture

    @property
    def mode(self) -> Mode:
        """How the last step ran."""
        last = self._last
        return "eager" if last is None or not last.programs else last.mode

    @property
    def reason(self) -> CaptureReason | None:
        """Why the last step ran in a lower mode than asked for."""
        return None if self._last is None else self._last.reason

    def signatures(self) -> list[Signature]:
        """Return what is known about each signature."""
        return list(self._signatures.values())

    def pool_bytes(self) -> int:
        """Return the memory that recordings hold."""
        return 0 if self._pool is None else pool_bytes(self._pool)

    def __call__(self, batch: Batch, part: Part) -> StepOutput:
        """Take one step."""
        signature = self._last = self._signature(batch)
        if self._body.static_gradients is not None:
            self._body.repair_gradients()
        if signature.mode == "eager":
            return self._eager(batch, part)
        program = signature.programs.get(part)
        if program is not None:
            program.inputs.fill(batch)
            change = self._changed()
            if change is None and self._body.state.is_lost():
                change = "the shape of a graph's state"
            if change is None and self._body.state.is_pinned():
                return self._replay(signature, program)
            if change is not None:
                self._invalidate(change, signature)
            return self._eager(batch, part, on_side=True)
        if signature.warmup > 0:
            signature.warmup -= 1
            inspect = signature.warmup == 0
            return self._eager(batch, part, on_side=True, inspect=signature if inspect else None)
        return self._begin(signature, batch, part)

    def replay_ms(self) -> float | None:
        """Return the time of a replay on the GPU, if there was one."""
        return self._clock.milliseconds()

    def invalidate(self, reason: str) -> None:
        """Drop all recordings; each signature is recorded anew after one eager step."""
        self._drop_programs()
        self.recaptures.append(reason)

    def flush_capture_state(self) -> None:
        """Forget the recordings and their memory for good."""
        self._drop_programs()
        self._pool = None

    # signatures ------------------------------------------------------------------

    def _signature(self, batch: Batch) -> Signature:
        key = key_of(batch, training=self._model.training)
        known = self._signatures.get(key)
        if known is not None:
            return known
        if len(self._signatures) >= 2 * self._capture.max_graphs:
            return self._too_many(batch)
        fresh = Signature(describe(batch), self._capture.warmup, "captured")
        if self._capture.mode == "off":
            fresh.mode = "eager"
            fresh.reason = CaptureReason.of(ReasonCode.DISABLED, 'capture="off"')
        elif sum(known.mode != "eager" for known in self._signatures.values()) >= (
            self._capture.max_graphs
        ):
            return self._too_many(batch)
        else:
            self._plan(fresh, batch)
        self._signatures[key] = fresh
        return fresh

    def _plan(self, fresh: Signature, batch: Batch) -> None:
        is_partial = batch.size < self._main_rows
        self._main_rows = max(self._main_rows, batch.size)
        if is_partial and self._capture.partial == "eager":
            fresh.mode = "eager"
            fresh.reason = CaptureReason.of(
                ReasonCode.DISABLED, f'a batch of {batch.size} rows, and partial="eager"'
            )
        elif is_partial and self._capture.partial == "auto":
            fresh.warmup = 1
        reason = self._blocked_beforehand()
        if reason is not None and fresh.mode != "eager":
            self._descend(fresh, reason)

    def _blocked_beforehand(self) -> CaptureReason | None:
        for name, module in self._model.named_modules():
            why = getattr(module, "flodl_dynamic", None)
            if why:
                return CaptureReason.of(
                    ReasonCode.DATA_DEPENDENT_NODE,
                    f"module {name!r} ({type(module).__name__}) is dynamic: {why}",
                )
            report = getattr(module, "capture_report", None)
            found = report() if callable(report) else None
            if found is not None and not found.ok:
                return CaptureReason.of(
                    ReasonCode.DATA_DEPENDENT_NODE, "; ".join(map(str, found.blockers))
                )
        if any(p.device != self._device for p in self._model.parameters()):
            return CaptureReason.of(
                ReasonCode.CUDA_ERROR, f"not all parameters are on {self._device}"
            )
        if not self._support.is_capturable:
            return CaptureReason.of(
                ReasonCode.OPTIMIZER_NOT_CAPTURABLE,
                self._support.reason,
                hint=self._support.hint,
                in_update=True,
            )
        return None

    def _too_many(self, batch: Batch) -> Signature:
        reason = CaptureReason.of(
            ReasonCode.TOO_MANY_SIGNATURES,
            f"a batch of another shape ({describe(batch)}) after {len(self._signatures)} others, "
            f"max_graphs={self._capture.max_graphs}",
        )
        if self._capture.mode == "require":
            raise CaptureError(reason.code, reason.message, hint=reason.hint)
        if not self._overflow_told:
            self._overflow_told = True
            announce("eager", reason)
        return Signature(describe(batch), 0, "eager", reason)

    def _descend(self, signature: Signature, reason: CaptureReason) -> None:
        """Go to the next lower mode that the reason leaves open, and say so.

        Raises:
            CaptureError: Capture is required.
        """
        if self._capture.mode == "require":
            kind = (
                CaptureMismatchError if reason.code is ReasonCode.VERIFY_MISMATCH else CaptureError
            )
            raise kind(reason.code, reason.message, reason.location, hint=reason.hint or None)
        keeps_half = reason.in_update or reason.code in (ReasonCode.OOM, ReasonCode.CUDA_ERROR)
        half_open = signature.mode == "captured" and keeps_half
        signature.mode = "captured-fwd-bwd" if half_open else "eager"
        signature.reason = reason
        signature.programs.clear()
        announce(signature.mode, reason)

    # eager -----------------------------------------------------------------------

    def _eager(
        self,
        batch: Batch,
        part: Part,
        *,
        on_side: bool = False,
        inspect: Signature | None = None,
    ) -> StepOutput:
        self.counts["eager"] += 1
        self._shown = None
        batch = batch.to(self._device, non_blocking=True)
        with self._side_stream() if on_side else _nothing():
            if inspect is None:
                loss, norm, metrics = self._run(batch, part)
            else:
                loss, norm, metrics = self._inspected(inspect, batch, part)
            names, row = row_of(loss, norm, [(n, self._on_device(v)) for n, v in metrics])
        return self._output(names, row)

    def _on_device(self, value: Tensor | float) -> Tensor:
        if isinstance(value, Tensor):
            return value.to(self._device, non_blocking=True)
        return torch.full((), value, dtype=torch.float32, device=self._device)

    def _run(self, batch: Batch, part: Part) -> tuple[Tensor, Tensor | None, Metrics]:
        with self._scope.active():
            loss, returned = self._body.forward_backward(batch, starts_window=part.starts)
        metrics = self._scope.take(returned)
        norm = self._body.update() if part.ends else None
        return loss, norm, metrics

    def _inspected(
        self, signature: Signature, batch: Batch, part: Part
    ) -> tuple[Tensor, Tensor | None, Metrics]:
        """Take a step while looking for what a graph could not repeat."""
        if self._is_compiled():
            return self._run(batch, part)
        inspector = StepInspector(self._device, self._generators)
        effects = SideEffects(self._step_fn, self._model)
        numpy_state = numpy_random_state()
        before = numpy_state()
        with inspector, python_random_watched(inspector.reasons), self._scope.active():
            loss, returned = self._body.forward_backward(batch, starts_window=part.starts)
        if numpy_state() != before:
            inspector.reasons.append(
                CaptureReason.of(
                    ReasonCode.BAKED_SCALAR,
                    "NumPy's global random generator was used during the step",
                    hint="draw random numbers with torch on the model's device",
                )
            )
        metrics = self._scope.take(returned)
        changed = effects.found(inspector.read)
        if changed is not None:
            message = f"the step changes {changed}"
            inspector.reasons.append(CaptureReason.of(ReasonCode.HOOK_SIDE_EFFECT, message))
        numbers = [name for name, value in metrics if not isinstance(value, Tensor)]
        inspector.reasons += [number_recorded(name) for name in numbers]
        inspector.in_update = True
        norm = None
        if part.ends:
            # a scaler asks the host as long as the optimizer has no state, and only then
            with inspector if self._body.has_optimizer_state() else _nothing():
                norm = self._body.update()
        self._outside.update(inspector.written)
        self._host_values = inspector.host_values
        if inspector.reasons:
            self._descend(signature, min(inspector.reasons, key=lambda r: r.in_update))
        return loss, norm, metrics

    def _is_compiled(self) -> bool:
        """Return whether code of torch.compile runs, which does not work while looking on."""
        return self._body.is_compiled or any(
            getattr(module, "_compiled_call_impl", None) is not None
            or type(module).__name__ == "OptimizedModule"
            for module in self._model.modules()
        )

    def _output(self, names: tuple[str, ...], row: Tensor) -> StepOutput:
        chunk, place = self.ring.put(row, names)
        loss, index = LazyScalar(chunk, place, 0), self.ring.taken - 1
        if len(names) == 1:
            return StepOutput(loss, index)
        norm = LazyScalar(chunk, place, 1) if "grad_norm" in names else None
        metrics = {
            name.removeprefix("metric:"): LazyScalar(chunk, place, column)
            for column, name in enumerate(names)
            if name.startswith("metric:")
        }
        return StepOutput(loss, index, norm, metrics)

    # capture ---------------------------------------------------------------------

    def _begin(self, signature: Signature, batch: Batch, part: Part) -> StepOutput:
        """Record the step for this batch and take it by the first replay."""
        body = self._body
        if not body.has_optimizer_state() or self._waits_for_window(part):
            return self._eager(batch, part, on_side=True)
        if self._config.accumulate > 1 and body.static_gradients is None:
            body.pin_gradients()
        program = self._record(signature, batch, part)
        if program is None:
            if signature.mode == "captured-fwd-bwd":
                return self._begin(signature, batch, part)
            return self._eager(batch, part)
        signature.programs[part] = program
        self.captures += 1
        if self._capture.verify != "off" and not self._verified(signature, program):
            return self._eager(batch, part)
        return self._replay(signature, program)

    def _waits_for_window(self, part: Part) -> bool:
        """Return whether gradients must first be seen by a whole eager window."""
        return (
            self._config.accumulate > 1
            and self._body.static_gradients is None
            and not (part.starts and any(p.grad is not None for p in self._body.parameters))
        )

    def _record(self, signature: Signature, batch: Batch, part: Part) -> Program | None:
        body = self._body
        if self._pool is None:
            self._pool = gpu_graph_pool_handle()
        known = next(iter(signature.programs.values()), None)
        try:
            inputs = known.inputs if known else StaticInputs(batch, self._device)
            inputs.fill(batch)
            if not body.state.is_pinned():
                body.state.pin()
            if body.static_gradients is None:
                for parameter in body.parameters:
                    parameter.grad = None
            program = record(
                body,
                self._scope,
                inputs,
                part,
                with_update=part.ends and signature.mode == "captured",
                place=Place(self._pool, self._stream(), self._generators),
            )
        except Exception as error:  # noqa: BLE001 - any failure means: take the step eagerly
            reason = reason_of(error)
            del error
            self._scope.take({})
            self._recover()
            self._descend(signature, reason)
            return None
        self._state = CapturedState(
            self._step_fn,
            self._model,
            body.optimizer,
            body.scaler,
            watches_groups=self._support.is_capturable,
            observed=[
                item
                for known in self._signatures.values()
                for recorded in [*known.programs.values(), program]
                for item in recorded.observed
            ],
        )
        return program

    def _recover(self) -> None:
        self._drop_programs()
        self._pool = None
        self._body.abandon()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()

    def _replay(self, signature: Signature, program: Program) -> StepOutput:
        signature.replays += 1
        signature.replays_since_change += 1
        if signature.replays_since_change > _MOST_CHANGES_IN_A_ROW:
            signature.changes_in_a_row = 0
        every = self._capture.verify
        due = isinstance(every, int) and signature.replays % every == 0
        if due and not self._verified(signature, program):
            return self._eager(program.inputs.batch, program.part)
        self.counts[signature.mode] += 1
        self._clock.start()
        program.graph.replay()
        self._clock.stop()
        if self._shown is not program:
            program.show()
            self._shown = program
        if program.has_update or not program.part.ends:
            return self._output(program.names, program.row)
        norm = self._body.update()
        if norm is None:
            return self._output(program.names, program.row)
        return self._output(*with_norm(program.names, program.row, norm))

    _shown: Program | None = None

    def _verified(self, signature: Signature, program: Program) -> bool:
        """Compare replays with eager steps; afterwards the first replay is what has happened."""
        tensors = self._changing()
        needed = 3 * sum(tensor.nbytes for _, tensor in tensors)
        free = torch.cuda.mem_get_info(self._device)[0]
        if needed > free / 4:
            _logger.info(
                "capture: the first replay of %s is not compared with an eager step: that takes "
                "%d bytes and %d are free",
                signature.title,
                needed,
                free,
            )
            return True

        def replayed() -> list[NamedTensor]:
            program.graph.replay()
            program.show()
            return self._computed(program, program.loss)

        def eagerly() -> list[NamedTensor]:
            with self._side_stream(), self._scope.active():
                loss, returned = self._body.forward_backward(
                    program.inputs.batch, starts_window=program.part.starts
                )
                self._scope.take(returned)
                if program.has_update:
                    self._body.update()
            return self._computed(program, loss)

        random = RandomState(self._device, self._generators)
        found = check_replay(replayed, eagerly, tensors, random, self._tolerance())
        torch.cuda.empty_cache()
        self._shown = None
        if found is None:
            return True
        self._recover()
        self._descend(signature, CaptureReason.of(ReasonCode.VERIFY_MISMATCH, str(found)))
        return False

    @staticmethod
    def _computed(program: Program, loss: Tensor) -> list[NamedTensor]:
        """Return the loss, and gradients where these are what a replay is for."""
        gradients = [] if program.has_update else program.gradients
        return [("the loss", loss)] + [
            (f"gradient {number}", p.grad)
            for number, (p, _) in enumerate(gradients)
            if p.grad is not None
        ]

    def _tolerance(self) -> Tolerance:
        low = self._config.amp is not None or torch.backends.cuda.matmul.allow_tf32
        low = low or any(
            p.dtype in (torch.float16, torch.bfloat16) for p in self._model.parameters()
        )
        return Tolerance.of(is_low_precision=low)

    def _changing(self) -> list[NamedTensor]:
        """Return everything that a step may change, once each."""
        named: list[NamedTensor] = [
            *self._model.named_parameters(),
            *self._model.named_buffers(),
        ]
        scaler = self._body.scaler
        others = {
            "optimizer state": optimizer_tensors(self._body.optimizer),
            "gradient sum": [t for _, t in self._body.static_gradients or ()],
            "state cell": self._body.state.tensors(),
            "gradient scale": [
                value
                for value in ({} if scaler is None else vars(scaler)).values()
                if isinstance(value, Tensor)
            ],
            "tensor from outside the model": list(self._outside.values()),
        }
        for title, tensors in others.items():
            named += [(f"{title} {number}", t) for number, t in enumerate(tensors)]
        unique: dict[int, NamedTensor] = {}
        for name, tensor in named:
            if tensor.device == self._device and tensor.numel():
                unique.setdefault(tensor.data_ptr(), (name, tensor))
        return list(unique.values())

    # changes ---------------------------------------------------------------------

    def _changed(self) -> str | None:
        if self._state is None:
            return None
        for tensor, version in self._host_values:
            if tensor._version != version:  # noqa: SLF001 - torch has no public name for it
                return "a tensor on the host that takes part in the step"
        return self._state.changed()

    def _invalidate(self, change: str, signature: Signature) -> None:
        if self._capture.mode == "require":
            raise StaleGraphError(
                "stale",
                f"{change} changed after the step was captured",
                hint="call step.invalidate(reason) after such a change",
            )
        signature.changes_in_a_row += 1
        signature.replays_since_change = 0
        changes = signature.changes_in_a_row
        self._drop_programs()
        self.recaptures.append(change)
        if changes >= _MOST_CHANGES_IN_A_ROW:
            message = f"{change} changes between the steps"
            self._descend(signature, CaptureReason.of(ReasonCode.BAKED_SCALAR, message))
        else:
            _logger.info("capture: recording the step anew: %s changed", change)

    def _drop_programs(self) -> None:
        for signature in self._signatures.values():
            if signature.programs:
                signature.programs.clear()
                signature.warmup = 1
        self._state = None
        self._body.state.unpin()

    # streams ---------------------------------------------------------------------

    def _stream(self) -> torch.cuda.Stream:
        if self._side is None:
            self._side = torch.cuda.Stream(self._device)
        return self._side

    @contextmanager
    def _side_stream(self) -> Iterator[None]:
        side, current = self._stream(), torch.cuda.current_stream(self._device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            yield
        current.wait_stream(side)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
