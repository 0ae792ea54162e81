"""What a step knows about the batches of one shape, and the mode that is open to each."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import nn

from flodl.core.errors import CaptureError, CaptureMismatchError
from flodl.engine.capture import Part, Program
from flodl.engine.config import CaptureConfig
from flodl.engine.fallback import CaptureReason, Mode, ReasonCode, announce
from flodl.optim.capture import CaptureSupport


@dataclass(slots=True)
class Signature:
    """What is known about batches of one shape, and how they run.

    Attributes:
        title: The signature in words.
        warmup: Eager steps still to take before a capture.
        mode: How its steps run, or are to run once they are recorded.
        reason: Why it is a lower mode.
        programs: The recordings, by part of the accumulation window.
        refused: Parts that only save time, and could not be recorded.
        let_go: Parts whose recordings made room for others; one that comes back makes no room.
        has_waited: Whether a step was taken so that a graph has state again before a recording.
    """

    title: str
    warmup: int
    mode: Mode
    reason: CaptureReason | None = None
    programs: dict[Part, Program] = field(default_factory=dict)
    refused: set[Part] = field(default_factory=set)
    let_go: set[Part] = field(default_factory=set)
    has_waited: bool = False
    replays: int = 0
    changes_in_a_row: int = 0
    replays_since_change: int = 0


class Signatures:
    """The signatures that a step has met.

    Args:
        model: The model.
        capture: Whether and how steps are captured.
        support: What a graph can do with the optimizer.
        device: The GPU.
    """

    def __init__(
        self,
        model: nn.Module,
        capture: CaptureConfig,
        support: CaptureSupport,
        device: torch.device,
    ) -> None:
        self._model = model
        self._capture = capture
        self.support = support
        self._device = device
        self._known: dict[Hashable, Signature] = {}
        self._main_rows = 0
        self._overflow_told = False

    def all(self) -> list[Signature]:
        """Return every signature met so far."""
        return list(self._known.values())

    def of(self, key: Hashable, title: str, rows: int) -> Signature:
        """Return the signature of a key that was not met before.

        Args:
            key: What the signature is known by.
            title: The same in words.
            rows: Samples in the batch.

        Raises:
            CaptureError: Capture is required and this signature cannot be captured.
        """
        if len(self._known) >= 2 * self._capture.max_graphs:
            return self._too_many(title)
        fresh = Signature(title, self._capture.warmup, "captured")
        if self._capture.mode == "off":
            fresh.mode = "eager"
            fresh.reason = CaptureReason.of(ReasonCode.DISABLED, 'capture="off"')
        elif sum(known.mode != "eager" for known in self.all()) >= self._capture.max_graphs:
            return self._too_many(title)
        else:
            self._plan(fresh, rows)
        self._known[key] = fresh
        return fresh

    def known(self, key: Hashable) -> Signature | None:
        """Return the signature of a key, if it was met before."""
        return self._known.get(key)

    def _plan(self, fresh: Signature, rows: int) -> None:
        is_partial = rows < self._main_rows
        self._main_rows = max(self._main_rows, rows)
        if is_partial and self._capture.partial == "eager":
            fresh.mode = "eager"
            fresh.reason = CaptureReason.of(
                ReasonCode.DISABLED, f'a batch of {rows} rows, and partial="eager"'
            )
        elif is_partial and self._capture.partial == "auto":
            fresh.warmup = 1
        reason = self._blocked_beforehand()
        if reason is not None and fresh.mode != "eager":
            self.descend(fresh, reason)

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
        if not self.support.is_capturable:
            return CaptureReason.of(
                ReasonCode.OPTIMIZER_NOT_CAPTURABLE,
                self.support.reason,
                hint=self.support.hint,
                in_update=True,
            )
        return None

    def _too_many(self, title: str) -> Signature:
        reason = CaptureReason.of(
            ReasonCode.TOO_MANY_SIGNATURES,
            f"a batch of another shape ({title}) after {len(self._known)} others, "
            f"max_graphs={self._capture.max_graphs}",
        )
        if self._capture.mode == "require":
            raise CaptureError(reason.code, reason.message, hint=reason.hint)
        if not self._overflow_told:
            self._overflow_told = True
            announce("eager", reason)
        return Signature(title, 0, "eager", reason)

    def descend(self, signature: Signature, reason: CaptureReason) -> None:
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
