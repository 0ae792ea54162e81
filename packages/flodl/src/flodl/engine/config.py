"""Settings of the step, of its capture, and of the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict

import torch
from torch import nn

from flodl.core.errors import ConfigError
from flodl.data import Batch
from flodl.engine.gradients import GradientReducer
from flodl.engine.padding import BucketSizes, check_bucket_sizes
from flodl.nn import schedulers

Scalars = dict[str, Any]
Scheduler: TypeAlias = schedulers.Scheduler
StepResult = torch.Tensor | tuple[torch.Tensor, Scalars]
TrainStepFn = Callable[[Any, Batch], StepResult]
"""``(model, batch) -> loss`` or ``-> (loss, {name: scalar})``; the loss has one element."""

ModelFactory = Callable[[torch.device], nn.Module]
OptimFactory = Callable[[Any], torch.optim.Optimizer]
NonFinitePolicy = Literal["raise", "warn", "skip"]
CapturePolicy = Literal["auto", "require", "off"]
PartialPolicy = Literal["auto", "eager", "capture"]
Verify = Literal["off", "first"] | int
AnyScheduler = Scheduler | torch.optim.lr_scheduler.LRScheduler

_GRAPH_MODES = ("reduce-overhead", "max-autotune")


@dataclass(frozen=True, kw_only=True, slots=True)
class CaptureConfig:
    """Whether and how a step is captured as one GPU graph."""

    mode: CapturePolicy = "auto"
    """``"auto"`` falls back to eager steps with one warning, ``"require"`` raises instead."""
    warmup: int = 3
    """Steps of each signature that are taken eagerly before its capture."""
    verify: Verify = "first"
    """Compare the first replay with the eager step; a number: and every n-th replay after it."""
    max_graphs: int = 16
    """Signatures that may be captured; further ones stay eager."""
    partial: PartialPolicy = "auto"
    """A last batch with fewer rows: ``"auto"`` captures it from its second time on."""
    metrics_ring: int = 256
    """Steps whose losses and metrics the GPU keeps before they are copied to the host."""
    steps_per_replay: int = 1
    """Steps that one replay takes, where the loop gathers batches on the GPU."""

    def __post_init__(self) -> None:
        _one_of("capture", self.mode, ("auto", "require", "off"))
        _one_of("partial", self.partial, ("auto", "eager", "capture"))
        least_values = {"warmup": 1, "max_graphs": 1, "metrics_ring": 2, "steps_per_replay": 1}
        for name, least in least_values.items():
            _whole(name, getattr(self, name), least)
        if self.verify not in ("off", "first"):
            _whole("verify", self.verify, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepConfig:
    """How one step treats its gradients and its loss, and how it runs."""

    max_grad_norm: float | None = None
    """Scale gradients so that their joint 2-norm is at most this."""
    clip_value: float | None = None
    """Clamp each gradient element to plus or minus this."""
    scheduler: AnyScheduler | None = None
    """Sets the learning rate of every group before each step; torch's are stepped after it."""
    on_nonfinite: NonFinitePolicy = "raise"
    """What a NaN or infinite loss does: ``"raise"`` ends training, on a GPU some steps later;
    ``"warn"`` says so once; ``"skip"`` leaves parameters and optimizer as they were, also for
    gradients that are not finite."""
    flags_nonfinite: bool = False
    """Count batches whose loss is not finite on the device, as ``step.bad_batches``."""
    amp: torch.dtype | None = None
    """Run forward and loss under autocast: ``torch.bfloat16`` or ``torch.float16``."""
    scaler: torch.amp.GradScaler | None = None
    """Scales the loss; for float16."""
    accumulate: int = 1
    """Batches whose gradients are averaged into one optimizer step."""
    compile: bool | Mapping[str, Any] = False
    """Compile the model; a map gives options of ``torch.compile``."""
    splits_oom: bool = True
    """Take a batch in 2, 4 or 8 parts, from then on, when memory runs out in forward or backward;
    such steps are eager."""
    reduce: GradientReducer | None = None
    """Exchanges the gradients with other ranks before clipping."""
    passthrough: Sequence[str] = ()
    """Static fields of batches, names of samples for instance, that are for others than the step:
    the step function does not see them, and they make no new signature."""
    bucket_sizes: Mapping[str, BucketSizes] = field(default_factory=dict)
    """Tensors of batches, by name, that are padded to one of a few lengths."""
    capture: CaptureConfig = field(default_factory=CaptureConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.capture, CaptureConfig):
            raise ConfigError(
                f"capture={self.capture!r}: must be a CaptureConfig",
                hint='the builder and TrainStep take .capture("auto", ...)',
            )
        for name in ("max_grad_norm", "clip_value"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}={value!r}: must be a positive number")
        _one_of("on_nonfinite", self.on_nonfinite, ("raise", "warn", "skip"))
        scheduler = self.scheduler
        if scheduler is not None and not isinstance(
            scheduler, Scheduler | torch.optim.lr_scheduler.LRScheduler
        ):
            raise ConfigError(f"scheduler={scheduler!r}: must have a method lr(step) -> float")
        if self.amp not in (None, torch.bfloat16, torch.float16):
            raise ConfigError(f"amp={self.amp!r}: must be torch.bfloat16, torch.float16 or None")
        if self.scaler is not None and not isinstance(self.scaler, torch.amp.GradScaler):
            raise ConfigError(f"scaler={self.scaler!r}: must be a GradScaler")
        if self.scaler is not None and self.amp is None:
            raise ConfigError("scaler is set and amp is not; scaling is for amp=torch.float16")
        _whole("accumulate", self.accumulate, 1)
        if self.reduce is not None and not callable(self.reduce):
            raise ConfigError(f"reduce={self.reduce!r}: must be called with the gradients")
        if isinstance(self.passthrough, str):
            raise ConfigError(f"passthrough={self.passthrough!r}: must be a list of names")
        check_bucket_sizes(self.bucket_sizes)
        if self.capture.steps_per_replay > 1 and (self.accumulate > 1 or self.reduce is not None):
            raise ConfigError(
                f"steps_per_replay={self.capture.steps_per_replay} with accumulate or reduce: "
                "a replay of several steps has no place for what happens between them",
                hint="use steps_per_replay=1",
            )
        _check_compile(self.compile)


class StepOptions(TypedDict, total=False):
    """Keyword arguments of ``TrainStep``: the fields of ``StepConfig`` and ``CaptureConfig``."""

    max_grad_norm: float | None
    clip_value: float | None
    scheduler: AnyScheduler | None
    on_nonfinite: NonFinitePolicy
    flags_nonfinite: bool
    amp: torch.dtype | None
    scaler: torch.amp.GradScaler | None
    accumulate: int
    compile: bool | Mapping[str, Any]
    splits_oom: bool
    reduce: GradientReducer | None
    passthrough: Sequence[str]
    bucket_sizes: Mapping[str, BucketSizes]
    capture: CapturePolicy
    warmup: int
    verify: Verify
    max_graphs: int
    partial: PartialPolicy
    metrics_ring: int
    steps_per_replay: int


def merged(config: StepConfig | None, options: Mapping[str, Any]) -> StepConfig:
    """Return a ready configuration, or the one that flat options describe.

    Raises:
        ConfigError: Both are given, an option is unknown, or a value is out of range.
    """
    if config is not None:
        if options:
            raise ConfigError(
                f"config is given and {', '.join(options)} as well; give one or the other"
            )
        return config
    known = StepOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(f"{name}: no such option; there are {', '.join(known)}")
    of_capture = {"mode" if name == "capture" else name for name in CaptureConfig.__slots__}
    plain = {("mode" if name == "capture" else name): value for name, value in options.items()}
    capture = CaptureConfig(**{k: v for k, v in plain.items() if k in of_capture})
    rest = {k: v for k, v in plain.items() if k not in of_capture}
    return StepConfig(**rest, capture=capture)


def _one_of(name: str, value: object, legal: tuple[str, ...]) -> None:
    if value not in legal:
        named = [f'"{item}"' for item in legal]
        raise ConfigError(f"{name}={value!r}: must be {', '.join(named[:-1])} or {named[-1]}")


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r}: must be a whole number of at least {least}")


def _check_compile(value: object) -> None:
    if isinstance(value, bool):
        return
    if not isinstance(value, Mapping):
        raise ConfigError(f"compile={value!r}: must be True, False or options of torch.compile")
    mode = str(value.get("mode", "default"))
    options = value.get("options") or {}
    if mode in _GRAPH_MODES or options.get("triton.cudagraphs"):
        raise ConfigError(
            f"compile={dict(value)!r}: makes GPU graphs of its own, and the step is one already",
            hint='use mode="default", or "max-autotune-no-cudagraphs"',
        )
