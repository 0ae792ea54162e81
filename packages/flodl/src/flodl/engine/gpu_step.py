"""Steps on a GPU: eager first, then as one recorded graph, or eager for a reason."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from flodl.core.errors import StaleGraphError
from flodl.data import Batch
from flodl.device.gpu_graph import RandomState
from flodl.engine.body import StepBody
from flodl.engine.buffers import describe, key_of
from flodl.engine.capture import (
    SPLIT,
    WHOLE,
    Part,
    Program,
    with_norm,
)
from flodl.engine.config import CaptureConfig, StepConfig, TrainStepFn
from flodl.engine.eager_step import EagerStep
from flodl.engine.fallback import CaptureReason, Mode, ReasonCode, reason_of
from flodl.engine.guards import CapturedState
from flodl.engine.output import StepOutput, reported
from flodl.engine.rates import StepRates
from flodl.engine.recorder import Recorder
from flodl.engine.replay_check import ReplayCheck
from flodl.engine.resident import RowBatch
from flodl.engine.ring import MetricRing
from flodl.engine.side import SideStream
from flodl.engine.signatures import Signature, Signatures
from flodl.engine.timing import SampledClock
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
        self._config = config
        self._device = device
        self._exchanges = config.reduce is not None
        self._eager = EagerStep(body, step_fn, device, generators, exchanges=self._exchanges)
        self._side = SideStream(device)
        self._recorder = Recorder(body, config, self._eager, self._side, device, generators)
        self._check = ReplayCheck(
            body,
            self._eager,
            self._side,
            device,
            generators,
            is_low_precision=config.amp is not None,
        )
        self._signatures = Signatures(body.model, config.capture, support, device)
        self._clock = SampledClock()
        self._random = RandomState(device, generators)
        self._state: CapturedState | None = None
        body.split.let_go = self._drop_programs
        self._last: Signature | None = None
        self._shown: Program | None = None
        self.ring = MetricRing(device, config.capture.metrics_ring)
        self.counts: dict[Mode, int] = {"captured": 0, "captured-fwd-bwd": 0, "eager": 0}
        self.captures = 0
        self.recaptures: list[str] = []

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
        return self._signatures.all()

    def pool_bytes(self) -> int:
        """Return the memory that recordings hold."""
        return self._recorder.pool_bytes()

    def replay_ms(self) -> float | None:
        """Return the time of a replay on the GPU, if there was one."""
        return self._clock.milliseconds()

    def __call__(self, batch: Batch | RowBatch, part: Part) -> StepOutput:
        """Take one step."""
        signature = self._last = self._signature(batch)
        if self._body.gradients is not None:
            self._body.gradients.repair()
        if signature.mode != "eager" and self._body.split.parts > 1:
            self._stop_capturing(signature)
        if signature.mode == "eager":
            return self._eagerly(batch, part)
        if part is WHOLE and self.ring.is_read_at_once and self._recorder.may_split(signature):
            part = SPLIT
        program = signature.programs.get(part)
        if program is not None:
            program.inputs.fill(batch)
            if part is SPLIT and not self._is_check_due(signature):
                return self._replay_split(signature, program, batch)
            change = self._changed()
            if change is None and self._body.state.is_pinned():
                return self._replay(signature, program, batch)
            if change is not None:
                self._invalidate(change, signature)
            return self._eagerly(batch, part, on_side=True)
        if signature.warmup > 0:
            signature.warmup -= 1
            inspect = signature.warmup == 0
            return self._eagerly(batch, part, on_side=True, inspect=signature if inspect else None)
        return self._begin(signature, batch, part)

    def may_take_together(self, batch: RowBatch) -> bool:
        """Return whether one step of this kind is captured, so that several may be."""
        if torch.cuda.current_device() != self._device.index:
            return False
        known = self._signatures.known((batch.source.key, self._body.model.training))
        if known is None or known.mode != "captured" or WHOLE not in known.programs:
            return False
        return Part(True, True, steps=batch.count) not in known.refused

    def take_together(
        self, batch: RowBatch, rates: Sequence[float] | None, targets: Sequence[Tensor]
    ) -> StepOutput | None:
        """Take several steps by one replay; ``None`` when they must be taken one by one.

        Args:
            batch: The first of the batches, and how many.
            rates: Learning rates of the steps, if a schedule gives them.
            targets: The tensors that hold the groups' rates.
        """
        signature = self._last = self._signature(batch)
        change = self._changed()
        if change is not None or not self._body.state.is_pinned():
            if change is not None:
                self._invalidate(change, signature)
            return None
        part = Part(True, True, steps=batch.count)
        program = signature.programs.get(part)
        if program is None:
            program = self._recorded(signature, batch, part, StepRates.of(rates, targets))
            if program is None:
                return None
            signature.programs[part] = program
            self.captures += 1
            program.inputs.fill(batch)
            program.set_rates(rates)
            if self._capture.verify != "off" and not self._verified(signature, program):
                return None
        else:
            program.inputs.fill(batch)
            program.set_rates(rates)
        program.graph.replay()
        self.counts["captured"] += batch.count
        if self._shown is not program or program.has_lost_gradients:
            program.show()
            self._shown = program
        for row in program.row:
            output = self._output(program.names, row)
        return output

    def invalidate(self, reason: str) -> None:
        """Drop all recordings; each signature is recorded anew after one eager step."""
        self._drop_programs()
        self.recaptures.append(reason)

    def set_support(self, support: CaptureSupport) -> None:
        """Take note of what a graph can do with the optimizer after its groups have changed."""
        self._signatures.support = support

    def _signature(self, batch: Batch | RowBatch) -> Signature:
        training = self._body.model.training
        key: Hashable
        if isinstance(batch, RowBatch):
            key = (batch.source.key, training)
        else:
            key = key_of(batch, training=training)
        known = self._signatures.known(key)
        if known is not None:
            return known
        title = batch.source.title if isinstance(batch, RowBatch) else describe(batch)
        return self._signatures.of(key, title, batch.size)

    def _eagerly(
        self,
        batch: Batch | RowBatch,
        part: Part,
        *,
        on_side: bool = False,
        inspect: Signature | None = None,
    ) -> StepOutput:
        self.counts["eager"] += 1
        self._shown = None
        given = batch.read() if isinstance(batch, RowBatch) else batch
        moved = given.to(self._device, non_blocking=True)
        if not on_side:
            return self._output(*self._eager.take(moved, part))
        with self._side.entered():
            if inspect is None:
                values = self._eager.take(moved, part)
            else:
                borrowed = given is batch and moved[0] is given[0]
                values = self._eager.inspect(
                    moved, part, lambda found: self._refuse(inspect, found), borrowed=borrowed
                )
                if self._eager.must_look_again:
                    inspect.warmup = 1
        return self._output(*values)

    def _refuse(self, signature: Signature, reasons: list[CaptureReason]) -> None:
        if signature.mode == "captured-fwd-bwd":
            reasons = [reason for reason in reasons if not reason.in_update]
            if not reasons:
                return
        self._signatures.descend(signature, min(reasons, key=lambda reason: reason.in_update))

    def _stop_capturing(self, signature: Signature) -> None:
        """Stay eager: a graph would hold the memory of a whole batch, which there is not."""
        message = f"memory ran out, and batches are taken in {self._body.split.parts} parts"
        self._signatures.descend(signature, CaptureReason.of(ReasonCode.BATCH_SPLIT, message))

    def _output(self, names: tuple[str, ...], row: Tensor) -> StepOutput:
        return reported(self.ring, names, row)

    # capture ---------------------------------------------------------------------

    def _begin(self, signature: Signature, batch: Batch | RowBatch, part: Part) -> StepOutput:
        """Record the step for this batch and take it by the first replay."""
        if self._must_wait(signature, part):
            return self._eagerly(batch, part, on_side=True)
        program = self._recorded(signature, batch, part)
        if program is None:
            if signature.mode == "captured-fwd-bwd":
                return self._begin(signature, batch, part)
            return self._eagerly(batch, part)
        signature.programs[part] = program
        self.captures += 1
        if self._capture.verify != "off" and not self._verified(signature, program):
            return self._eagerly(batch, part)
        return self._replay(signature, program, batch)

    def _must_wait(self, signature: Signature, part: Part) -> bool:
        """Return whether another eager step must be taken before this one can be recorded."""
        body = self._body
        if not body.has_optimizer_state() or self._recorder.waits_for_window(part):
            return True
        if not body.state.is_settled() and not signature.has_waited:
            signature.has_waited = True  # once: some state is never kept
            return True
        signature.has_waited = False
        change = self._changed()
        if change is not None:  # the recordings of other signatures would take it for granted
            self._invalidate(change, signature)
        return change is not None

    def _recorded(
        self,
        signature: Signature,
        batch: Batch | RowBatch,
        part: Part,
        rates: StepRates | None = None,
    ) -> Program | None:
        """Return a new recording; ``None`` once the signature has gone to a lower mode."""
        self._shown = None  # it may be the one that gives its memory to the new one
        try:
            program = self._recorder.record(signature, batch, part, rates)
        except Exception as error:  # noqa: BLE001 - any failure means: take the step eagerly
            reason = reason_of(error)
            del error
            self._eager.scope.take({})
            self._recover()
            if part.is_optional:
                signature.refused.add(part)
                _logger.info("capture: going on without %s: %s", part, reason)
            else:
                self._signatures.descend(signature, reason)
            return None
        recorded = [p for known in self.signatures() for p in known.programs.values()]
        recorded.append(program)
        self._state = CapturedState(
            self._step_fn,
            self._body.model,
            self._body.optimizer,
            self._body.scaler,
            watches_groups=any(known.updates for known in recorded),
            observed=[item for known in recorded for item in known.observed],
        )
        return program

    def _recover(self) -> None:
        self._drop_programs()
        self._body.abandon()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()

    def _replay(
        self,
        signature: Signature,
        program: Program,
        batch: Batch | RowBatch,
        *,
        is_launched: bool = False,
    ) -> StepOutput:
        signature.replays += 1
        signature.replays_since_change += 1
        if signature.replays_since_change > _MOST_CHANGES_IN_A_ROW:
            signature.changes_in_a_row = 0
        due = not is_launched and self._is_check_due(signature, now=0)
        if due and not self._verified(signature, program):
            return self._eagerly(batch, program.part)
        self.counts[signature.mode] += 1
        if not is_launched:
            self._clock.start()
            program.graph.replay()
            self._clock.stop()
        if self._shown is not program or program.has_lost_gradients:
            program.show()
            self._shown = program
        if program.has_update or not program.part.ends:
            return self._output(program.names, program.row)
        if self._exchanges:
            self._body.exchange()
        update = program.update
        if update is not None and program.part is SPLIT and update.row is program.row:
            output = self._output(program.names, program.row)
            self.ring.let_read_early()
            update.graph.replay()
            return output
        if update is not None:
            update.graph.replay()
            return self._output(update.names, update.row)
        norm = self._body.update()
        if norm is None:
            return self._output(program.names, program.row)
        return self._output(*with_norm(program.names, program.row, norm))

    def _is_check_due(self, signature: Signature, *, now: int = 1) -> bool:
        every = self._capture.verify
        return isinstance(every, int) and (signature.replays + now) % every == 0

    def _replay_split(
        self, signature: Signature, program: Program, batch: Batch | RowBatch
    ) -> StepOutput:
        """Replay forward and backward, look for changes meanwhile, and then replay the update.

        Where the host waits for each loss, the GPU is idle until the next replay: what can be
        done after the launch costs nothing then. A change that is found is too late for forward
        and backward, which are undone.
        """
        if program.uses_random is not False:
            self._random.save()
        program.graph.replay()
        if program.uses_random is None:
            program.uses_random = self._random.has_moved()
        change = self._changed()
        if change is None and self._body.state.is_pinned():
            return self._replay(signature, program, batch, is_launched=True)
        program.undo()
        if program.uses_random:
            self._random.restore()
        if change is not None:
            self._invalidate(change, signature)
        return self._eagerly(batch, program.part, on_side=True)

    def _verified(self, signature: Signature, program: Program) -> bool:
        """Compare replays with eager steps; afterwards nothing has happened."""
        mismatch = self._check(program, signature.title)
        self._shown = None
        if mismatch is None:
            return True
        self._recover()
        self._signatures.descend(
            signature, CaptureReason.of(ReasonCode.VERIFY_MISMATCH, str(mismatch))
        )
        return False

    # changes ---------------------------------------------------------------------

    def _changed(self) -> str | None:
        if self._state is None:
            return None
        if self._eager.has_host_value_changed():
            return "a tensor on the host that takes part in the step"
        change = self._state.changed()
        if change is None and self._body.state.is_lost():
            return "the shape of a graph's state"
        return change

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
            self._signatures.descend(signature, CaptureReason.of(ReasonCode.BAKED_SCALAR, message))
        else:
            _logger.info("capture: recording the step anew: %s changed", change)

    def _drop_programs(self) -> None:
        for signature in self.signatures():
            if signature.programs:
                signature.programs.clear()
                signature.warmup = 1
        self._state = None
        self._eager.accept_host_values()
        self._body.state.unpin()
        # torch refuses a pool whose graphs are all gone while tensors of it live on, such as the
        # gradients of parameters that were replaced
        self._recorder.forget_pool()
