"""One training step: learning rate, forward, loss, backward, clipping, optimizer, as one graph."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from flodl.core.errors import CaptureError, NonFiniteError
from flodl.data import Batch
from flodl.engine.body import StepBody
from flodl.engine.capture import PARTS, Part
from flodl.engine.compile import CompiledStep
from flodl.engine.config import (
    NonFinitePolicy,
    StepConfig,
    StepOptions,
    TrainStepFn,
    merged,
)
from flodl.engine.fallback import CaptureReason, Mode, ReasonCode
from flodl.engine.gpu_step import GpuStep
from flodl.engine.output import LazyScalar, StepOutput
from flodl.engine.ring import StepRecord
from flodl.metrics.scalars import ScalarScope
from flodl.nn.precision import scaler_for
from flodl.optim import set_lr
from flodl.optim.capture import CaptureSupport, capture_support, prepare_for_capture

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SignatureMode:
    """How the batches of one shape run, and why not higher.

    Attributes:
        signature: Names, types and shapes of the batch.
        mode: How its steps run.
        reason: Why it is a lower mode than asked for, or ``None``.
    """

    signature: str
    mode: Mode
    reason: CaptureReason | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepStats:
    """What a step object has done so far."""

    captured: int
    """Steps that were one replay."""
    captured_fwd_bwd: int
    """Steps whose forward and backward were a replay."""
    eager: int
    captures: int
    recaptures: tuple[str, ...]
    """What was changed, for each time that recordings were dropped."""
    host_us: float | None
    """Mean time of the host in a replayed step."""
    device_ms: float | None
    """Time of one replay on the GPU; a sample."""
    pool_bytes: int
    signatures: tuple[SignatureMode, ...]


class TrainStep:
    """Takes training steps; on a GPU as one captured graph, checked against the eager step.

    Called with a batch it computes loss and gradients, clips, steps and gives back a
    :class:`StepOutput`. The first steps of each batch shape are eager; then the whole step is
    recorded and replayed. What cannot be recorded runs eagerly, with one warning that says why.

    Args:
        step_fn: ``(model, batch) -> loss`` or ``-> (loss, {name: scalar})``.
        model: The model in training, on its device.
        optimizer: Its optimizer. On a GPU its learning rates become tensors, and it gets the
            settings that capture needs, whether captured or not: so both give the same numbers.
        config: The settings; or give them one by one.
        scalars: Where recorded and returned scalars are gathered.
        generators: Random generators that the step uses besides the default one.
        options: The fields of ``StepConfig``, with those of ``CaptureConfig`` beside them;
            ``capture`` is ``"auto"``, ``"require"`` or ``"off"``.

    Raises:
        ConfigError: An option is unknown or out of range.
        CaptureError: Capture is required and there is no GPU.

    Example:
        >>> import torch
        >>> from flodl.data import Batch
        >>> from flodl.engine.step import TrainStep
        >>> model = torch.nn.Linear(1, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> step = TrainStep(lambda m, b: (m(b[0]) - b[1]).square().mean(), model, optimizer)
        >>> out = step(Batch([torch.ones(4, 1), torch.ones(4, 1)]))
        >>> out.step_index, step.global_step, step.mode
        (0, 1, 'eager')
    """

    def __init__(
        self,
        step_fn: TrainStepFn,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        config: StepConfig | None = None,
        scalars: ScalarScope | None = None,
        generators: Sequence[torch.Generator] = (),
        **options: Unpack[StepOptions],
    ) -> None:
        config = merged(config, options)
        self.model = model
        self.optimizer = optimizer
        self._config = config
        self._scalars = scalars or ScalarScope()
        self._device = _device_of(model, optimizer)
        if config.capture.mode == "require" and self._device.type != "cuda":
            raise CaptureError(
                ReasonCode.NO_GPU,
                f"capture is required and the model is on {self._device}",
                hint='move the model to a GPU before, or use capture="auto"',
            )
        support = self._prepared()
        call = CompiledStep(step_fn, model, config.compile) if config.compile else step_fn
        scaler = scaler_for(config.amp, config.scaler)
        self._body = StepBody(model, optimizer, call, config, support, scaler, self._device)
        self._gpu = (
            GpuStep(self._body, step_fn, config, support, self._device, generators)
            if self._device.type == "cuda"
            else None
        )
        self._on_record: Callable[[StepRecord], None] = NonFiniteWatch(config.on_nonfinite)
        self._rates = RateControl(optimizer, config)
        self._batches = 0
        self._in_window = 0
        self._host_s = 0.0
        self._timed = 0
        self.global_step = 0
        """Optimizer steps taken so far."""

    def _prepared(self) -> CaptureSupport:
        if self._device.type != "cuda":
            return CaptureSupport(is_capturable=False)
        support = capture_support(self.optimizer)
        if support.is_capturable:
            prepare_for_capture(self.optimizer)
        return support

    @property
    def current_lr(self) -> float:
        """Learning rate of the first group, as the last step used it."""
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def mode(self) -> Mode:
        """How the last step ran."""
        return "eager" if self._gpu is None else self._gpu.mode

    @property
    def reason(self) -> CaptureReason | None:
        """Why the last step ran in a lower mode than captured; ``None`` while warming up."""
        if self._gpu is None:
            return CaptureReason.of(ReasonCode.NO_GPU, f"the model is on {self._device}")
        return self._gpu.reason

    def __call__(self, batch: Batch) -> StepOutput:
        """Take one step.

        Raises:
            StepContractError: The step function returned no differentiable scalar.
            NonFiniteError: A loss was NaN or infinite; on a GPU noticed some steps later.
            CaptureError: Capture is required, and this step cannot be captured.
        """
        last = self._config.accumulate - 1
        part = PARTS[self._in_window == 0, self._in_window == last]
        if part.starts:
            self._rates.before(self.global_step)
        output = self._on_cpu(batch, part) if self._gpu is None else self._on_gpu(batch, part)
        self._in_window = 0 if part.ends else self._in_window + 1
        self._batches += 1
        if part.ends:
            self._stepped()
        return output

    def _stepped(self) -> None:
        self.global_step += 1
        self._rates.after()

    def _on_cpu(self, batch: Batch, part: Part) -> StepOutput:
        loss, returned = self._body.forward_backward(batch, starts_window=part.starts)
        norm = self._body.update() if part.ends else None
        index = self._batches
        for name, value in returned.items():
            self._scalars.add(name, value)
        self._on_record(StepRecord(index, ("loss",), (loss.item(),)))
        return StepOutput(
            LazyScalar(loss),
            index,
            None if norm is None else LazyScalar(norm),
            {name: LazyScalar(torch.as_tensor(value)) for name, value in returned.items()},
        )

    def _on_gpu(self, batch: Batch, part: Part) -> StepOutput:
        assert self._gpu is not None
        started, replays = time.perf_counter(), self._gpu.counts["captured"]
        if torch.cuda.current_device() == self._device.index:
            output = self._gpu(batch, part)
        else:
            with torch.cuda.device(self._device):
                output = self._gpu(batch, part)
        if self._gpu.counts["captured"] != replays:
            self._host_s += time.perf_counter() - started
            self._timed += 1
        self._deliver(self._gpu.ring.poll())
        return output

    def _deliver(self, records: Sequence[StepRecord]) -> None:
        for record in records:
            for name, value in zip(record.names, record.values, strict=True):
                if name.startswith("metric:"):
                    self._scalars.add(name.removeprefix("metric:"), value)
            self._on_record(record)

    @contextlib.contextmanager
    def reporting_to(self, receiver: Callable[[StepRecord], None]) -> Iterator[None]:
        """Give the record of every step to ``receiver`` within the block, in order.

        On the CPU it is called before the step returns, on a GPU when values have arrived; the
        rest when the block ends.
        """
        before, self._on_record = self._on_record, receiver
        try:
            yield
            self.flush()
        finally:
            self._on_record = before

    def finish_window(self) -> None:
        """Take the optimizer step of an accumulation that was left unfinished, if there is one.

        Its gradients are the mean over the batches that it had.
        """
        if not self._in_window:
            return
        factor = self._config.accumulate / self._in_window
        with torch.no_grad():
            self._body.scale_gradients(factor)
        self._body.update()
        self._in_window = 0
        self._stepped()

    def flush(self) -> None:
        """Wait for the GPU and deliver everything that steps have reported.

        Raises:
            NonFiniteError: A loss was NaN or infinite.
        """
        if self._gpu is not None:
            self._deliver(self._gpu.ring.flush())

    def invalidate(self, reason: str) -> None:
        """Drop the recordings, for a change that the step itself cannot see; it records anew."""
        if self._gpu is not None:
            self._gpu.invalidate(reason)

    def stats(self) -> StepStats:
        """Return what was done so far; waits for a replay that is being timed."""
        gpu = self._gpu
        if gpu is None:
            known = (SignatureMode("any", "eager", self.reason),) if self._batches else ()
            return StepStats(
                captured=0,
                captured_fwd_bwd=0,
                eager=self._batches,
                captures=0,
                recaptures=(),
                host_us=None,
                device_ms=None,
                pool_bytes=0,
                signatures=known,
            )
        return StepStats(
            captured=gpu.counts["captured"],
            captured_fwd_bwd=gpu.counts["captured-fwd-bwd"],
            eager=gpu.counts["eager"],
            captures=gpu.captures,
            recaptures=tuple(gpu.recaptures),
            host_us=self._host_s / self._timed * 1e6 if self._timed else None,
            device_ms=gpu.replay_ms(),
            pool_bytes=gpu.pool_bytes(),
            signatures=tuple(
                SignatureMode(s.title, s.mode if s.programs or s.reason else "eager", s.reason)
                for s in gpu.signatures()
            ),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the gradient scale; model and optimizer have their own."""
        scaler = self._body.scaler
        return {
            "global_step": self.global_step,
            "batches": self._batches,
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from saved counters and gradient scale."""
        self.global_step = int(state["global_step"])
        self._batches = int(state["batches"])
        if self._body.scaler is not None and state["scaler"] is not None:
            self._body.scaler.load_state_dict(state["scaler"])


class RateControl:
    """Keeps learning rates what a schedule says; whoever writes last wins.

    Args:
        optimizer: The optimizer.
        config: Its schedule.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, config: StepConfig) -> None:
        self._optimizer = optimizer
        # decided once: asking a protocol costs more than the rest of a replayed step
        self._rate: Callable[[int], float] | None = None
        self._advance: Callable[[], None] | None = None
        if isinstance(config.scheduler, torch.optim.lr_scheduler.LRScheduler):
            self._advance = config.scheduler.step
        elif config.scheduler is not None:
            self._rate = config.scheduler.lr
        self._written: float | None = None
        self._tensors = [
            (group, group["lr"])
            for group in optimizer.param_groups
            if isinstance(group["lr"], Tensor) and group["lr"].device.type == "cuda"
        ]

    def before(self, step: int) -> None:
        """Set the rates of a step."""
        for group, tensor in self._tensors:
            if group["lr"] is not tensor:  # assigned as torch's users do: graphs read the tensor
                tensor.fill_(float(group["lr"]))
                group["lr"] = tensor
        if self._rate is not None:
            rate = self._rate(step)
            if rate != self._written:
                set_lr(self._optimizer, rate)
                self._written = rate

    def after(self) -> None:
        """Move a schedule of torch on by one step."""
        if self._advance is not None:
            self._advance()


class NonFiniteWatch:
    """Looks out for losses that are not finite, where no loop does.

    Args:
        policy: What such a loss does.
    """

    def __init__(self, policy: NonFinitePolicy) -> None:
        self._policy = policy
        self._warned = False

    def __call__(self, record: StepRecord) -> None:
        """Look at one record.

        Raises:
            NonFiniteError: The loss is not finite and the policy is ``"raise"``.
        """
        if math.isfinite(record.values[0]):
            return
        message = f"the training loss became NaN or infinite at step {record.index}"
        if self._policy == "raise":
            raise NonFiniteError(
                message, hint="lower the learning rate, clip gradients, or check the inputs"
            )
        if not self._warned:
            self._warned = True
            _logger.warning("%s; going on because on_nonfinite is 'warn'", message)


def _device_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.device:
    parameters = [*model.parameters(), *(p for g in optimizer.param_groups for p in g["params"])]
    return parameters[0].device if parameters else torch.device("cpu")
