"""One training step: learning rate, forward, loss, backward, clipping, optimizer, as one graph."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from flodl.core.errors import CaptureError, ConfigError
from flodl.data import Batch
from flodl.engine.body import StepBody
from flodl.engine.capture import PARTS, Part
from flodl.engine.compile import CompiledStep
from flodl.engine.config import AnyScheduler, StepConfig, StepOptions, TrainStepFn, merged
from flodl.engine.fallback import CaptureReason, Mode, ReasonCode
from flodl.engine.gpu_step import GpuStep
from flodl.engine.nonfinite import NonFiniteWatch
from flodl.engine.output import LazyScalar, StepOutput
from flodl.engine.padding import padded
from flodl.engine.rates import RateControl
from flodl.engine.resident import RowBatch
from flodl.engine.ring import StepRecord
from flodl.engine.stats import StepStats
from flodl.metrics.scalars import ScalarScope
from flodl.nn.precision import scaler_for
from flodl.optim.capture import CaptureSupport, capture_support, prepare_for_capture


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

    Examples:
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
        self._is_on_gpu = runs_on_gpu(self._device)
        if config.capture.mode == "require" and not self._is_on_gpu:
            raise CaptureError(
                ReasonCode.NO_GPU,
                f"capture is required and the model is on {self._device}",
                hint='move the model to a GPU before, or use capture="auto"',
            )
        support = self._prepared()
        call = CompiledStep(step_fn, model, config.compile) if config.compile else step_fn
        scaler = scaler_for(config.amp, config.scaler)
        if scaler is not None and not scaler.is_enabled():
            scaler = None
        self._body = StepBody(model, optimizer, call, config, support, scaler, self._device)
        self._gpu = (
            GpuStep(self._body, step_fn, config, support, self._device, generators)
            if self._is_on_gpu
            else None
        )
        self._on_record: Callable[[StepRecord], None] = NonFiniteWatch(config.on_nonfinite)
        self._rates = RateControl(optimizer, config.scheduler, keeps_tensors=self._is_on_gpu)
        self._groups = (optimizer.param_groups, len(optimizer.param_groups))
        self._batches = 0
        self._in_window = 0
        self._host_s = 0.0
        self._timed = 0
        self.global_step = 0
        """Optimizer steps taken so far."""

    def _prepared(self) -> CaptureSupport:
        if not self._is_on_gpu:
            return CaptureSupport(is_capturable=False)
        support = capture_support(self.optimizer)
        if support.is_capturable:
            prepare_for_capture(self.optimizer)
        return support

    @property
    def scheduler(self) -> AnyScheduler | None:
        """The schedule of its rates, if it has one."""
        return self._rates.scheduler

    @property
    def has_open_window(self) -> bool:
        """Whether gradients of an accumulation wait for their optimizer step."""
        return self._in_window > 0

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

    @property
    def parts(self) -> int:
        """In how many parts batches are taken, because memory ran out; 1 for whole ones."""
        return self._body.split.parts

    @property
    def bad_batches(self) -> Tensor | None:
        """Batches so far whose loss was NaN or infinite: 0-d, on the device, in one place.

        Kept with ``flags_nonfinite`` or ``on_nonfinite="skip"``; set it to 0 with ``zero_()``.
        """
        return self._body.guard.bad_batches

    def set_lr_scale(self, factor: float) -> None:
        """Multiply learning rates by ``factor`` from the next step on, in place of the one before.

        It multiplies what the schedule says, or once the optimizer's rates without one. Captured
        steps stay as they are.

        Raises:
            ConfigError: The factor is not positive and finite.
        """
        self._rates.set_scale(factor)

    def set_scheduler(self, scheduler: AnyScheduler | None) -> None:
        """Let another schedule set the learning rates from the next step on; ``None``: none."""
        rates = RateControl(self.optimizer, scheduler, keeps_tensors=self._is_on_gpu)
        rates.scale = self._rates.scale  # the optimizer's rates are multiplied already
        self._rates = rates

    def adopt_lr_scale(self, factor: float) -> None:
        """Take a factor for given that the optimizer's rates, as they were loaded, have in them."""
        self._rates.scale = factor
        self._rates.forget()

    def __call__(self, batch: Batch | RowBatch) -> StepOutput:
        """Take one step.

        Raises:
            StepContractError: The step function returned no differentiable scalar.
            NonFiniteError: A loss was NaN or infinite; on a GPU noticed some steps later.
            CaptureError: Capture is required, and this step cannot be captured.
        """
        if isinstance(batch, RowBatch):
            if self._config.bucket_sizes:
                return self._one_by_one([part.read() for part in batch.singles()])
            if batch.count > 1:
                return self._take_together(batch)
        last = self._config.accumulate - 1
        part = PARTS[self._in_window == 0, self._in_window == last]
        if part.starts:
            self._follow_groups()
            self._rates.before(self.global_step)
        if isinstance(batch, Batch):
            batch = self._prepared_batch(batch)
        try:
            output = self._on_cpu(batch, part) if self._gpu is None else self._on_gpu(batch, part)
        except BaseException:
            if part.ends and self._config.reduce is not None:
                self._body.drop_window()
                self._in_window = 0
            raise
        self._in_window = 0 if part.ends else self._in_window + 1
        self._batches += 1
        if part.ends:
            self._stepped()
        return output

    def _take_together(self, batch: RowBatch) -> StepOutput:
        """Take several steps by one replay, or one by one where that is not recorded yet."""
        gpu, count = self._gpu, batch.count
        self._follow_groups()
        if gpu is not None and self._rates.steps_by_itself and gpu.may_take_together(batch):
            self._rates.before(self.global_step)
            rates = self._rates.ahead(self.global_step, count)
            output = gpu.take_together(batch, rates, self._rates.tensors)
            if output is not None:
                self._batches += count
                self.global_step += count
                self._deliver(gpu.ring.poll())
                return output
            self._rates.forget()
        return self._one_by_one(batch.singles())

    def _one_by_one(self, batches: Sequence[Batch] | Sequence[RowBatch]) -> StepOutput:
        *earlier, last = batches
        for batch in earlier:
            self(batch)
        return self(last)

    def _follow_groups(self) -> None:
        """Make groups that were added or loaded fit for capture, as those before them."""
        optimizer = self.optimizer
        groups, count = self._groups
        if optimizer.param_groups is groups and len(groups) == count:
            return
        self._groups = (optimizer.param_groups, len(optimizer.param_groups))
        if self._gpu is not None:
            self._gpu.invalidate("the optimizer's groups")
            self._gpu.set_support(self._prepared())
        self._rates.follow_groups()

    def _prepared_batch(self, batch: Batch) -> Batch:
        config = self._config
        if config.bucket_sizes:
            batch = padded(batch, config.bucket_sizes)
        if config.passthrough and any(name in batch.static for name in config.passthrough):
            static = {k: v for k, v in batch.static.items() if k not in config.passthrough}
            batch = Batch(
                batch.into_list(), batch.names, epoch=batch.epoch, index=batch.index, static=static
            )
        return batch

    def _stepped(self) -> None:
        self.global_step += 1
        self._rates.after()

    def _on_cpu(self, batch: Batch | RowBatch, part: Part) -> StepOutput:
        if isinstance(batch, RowBatch):
            batch = batch.read()
        loss, returned = self._body.split.forward_backward(batch, starts_window=part.starts)
        norm = self._body.end_window() if part.ends else None
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

    def _on_gpu(self, batch: Batch | RowBatch, part: Part) -> StepOutput:
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
        self._in_window = 0
        try:
            self._body.end_window()
        except BaseException:
            self._body.drop_window()
            raise
        self._stepped()

    def follow(self) -> None:
        """Take an optimizer step with gradients of other ranks alone, without a batch.

        ``reduce`` is called with gradients of zeros. Ranks that step together stay together so
        when one has no batch left.

        Raises:
            ConfigError: There is no ``reduce``, or a window of accumulation is open.
        """
        if self._config.reduce is None or self._in_window:
            raise ConfigError(
                "follow(): needs reduce=..., and no window of accumulation that is open",
                hint="call finish_window() before",
            )
        self._follow_groups()
        self._rates.before(self.global_step)
        try:
            self._body.follow()
        except BaseException:
            self._body.drop_window()
            raise
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
        if self._gpu is None:
            return StepStats.on_host(self._batches, self.reason)
        host_us = self._host_s / self._timed * 1e6 if self._timed else None
        return StepStats.on_gpu(self._gpu, host_us)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the gradient scale; model and optimizer have their own."""
        scaler = self._body.scaler
        return {
            "global_step": self.global_step,
            "batches": self._batches,
            "in_window": self._in_window,
            "lr_scale": self._rates.scale,
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from saved counters and gradient scale; model and optimizer are loaded before."""
        self.global_step = int(state["global_step"])
        self._batches = int(state["batches"])
        self._in_window = int(state.get("in_window", 0))
        self.adopt_lr_scale(float(state.get("lr_scale", 1.0)))
        if self._body.scaler is not None and state["scaler"] is not None:
            self._body.scaler.load_state_dict(state["scaler"])
        if self._gpu is not None:
            self._gpu.invalidate("a loaded state")
            self._gpu.set_support(self._prepared())
        self._rates.forget()


def runs_on_gpu(device: torch.device) -> bool:
    """Return whether steps on a device can be captured."""
    return device.type == "cuda"


def _device_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.device:
    parameters = [*model.parameters(), *(p for g in optimizer.param_groups for p in g["params"])]
    return parameters[0].device if parameters else torch.device("cpu")
