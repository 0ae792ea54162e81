"""What a step has done so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from flodl.engine.fallback import CaptureReason, Mode
from flodl.engine.gpu_step import GpuStep


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

    @classmethod
    def on_host(cls, steps: int, reason: CaptureReason | None) -> StepStats:
        """Return the numbers of a step that runs on the CPU."""
        return cls(
            captured=0,
            captured_fwd_bwd=0,
            eager=steps,
            captures=0,
            recaptures=(),
            host_us=None,
            device_ms=None,
            pool_bytes=0,
            signatures=(SignatureMode("any", "eager", reason),) if steps else (),
        )

    @classmethod
    def on_gpu(cls, gpu: GpuStep, host_us: float | None) -> StepStats:
        """Return the numbers of a step on a GPU; waits for a replay that is being timed."""
        return cls(
            captured=gpu.counts["captured"],
            captured_fwd_bwd=gpu.counts["captured-fwd-bwd"],
            eager=gpu.counts["eager"],
            captures=gpu.captures,
            recaptures=tuple(gpu.recaptures),
            host_us=host_us,
            device_ms=gpu.replay_ms(),
            pool_bytes=gpu.pool_bytes(),
            signatures=tuple(
                SignatureMode(s.title, s.mode if s.programs or s.reason else "eager", s.reason)
                for s in gpu.signatures()
            ),
        )
