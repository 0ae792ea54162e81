"""Why a step is not captured: the reasons, and the one line that tells about each."""

from __future__ import annotations

import logging
import sys
import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Literal

import torch

from flodl.device.memory import is_gpu_oom

_logger = logging.getLogger(__name__)

Mode = Literal["captured", "captured-fwd-bwd", "eager"]


class ReasonCode(StrEnum):
    """Every reason for which a step may run in another mode than the one asked for."""

    NO_GPU = "no_gpu"
    DISABLED = "disabled"
    HOST_SYNC = "host_sync"
    CPU_TENSOR_OP = "cpu_tensor_op"
    DYNAMIC_SHAPE = "dynamic_shape"
    DATA_DEPENDENT_NODE = "data_dependent_node"
    OPTIMIZER_NOT_CAPTURABLE = "optimizer_not_capturable"
    SCALER_SYNCS = "scaler_syncs"
    HOOK_SIDE_EFFECT = "hook_side_effect"
    STREAM_MISMATCH = "stream_mismatch"
    OOM = "oom"
    BATCH_SPLIT = "batch_split"
    RNG_GENERATOR = "rng_generator"
    VERIFY_MISMATCH = "verify_mismatch"
    TOO_MANY_SIGNATURES = "too_many_signatures"
    BAKED_SCALAR = "baked_scalar"
    CUDA_ERROR = "cuda_error"


_HINTS = {
    ReasonCode.HOST_SYNC: "keep values on the GPU: return or record tensors, use torch.where",
    ReasonCode.CPU_TENSOR_OP: "make the tensor on the model's device, once, outside the step",
    ReasonCode.DYNAMIC_SHAPE: "use masks or torch.where, so that every shape is fixed",
    ReasonCode.HOOK_SIDE_EFFECT: "a replay runs no Python: record tensors instead, or move the "
    "side effect out of the step",
    ReasonCode.STREAM_MISMATCH: "do not keep outputs of earlier steps with their history",
    ReasonCode.OOM: "use a smaller batch",
    ReasonCode.BATCH_SPLIT: "use a smaller batch",
    ReasonCode.RNG_GENERATOR: "draw random numbers on the model's device with its default "
    "generator",
    ReasonCode.VERIFY_MISMATCH: "look for state that the step keeps in Python, or for numbers "
    "that it takes from outside",
    ReasonCode.TOO_MANY_SIGNATURES: "pad batches to a few shapes, or raise max_graphs",
    ReasonCode.BAKED_SCALAR: "numbers that change during training must be tensors",
    ReasonCode.CUDA_ERROR: 'capture="off" leaves it out',
}


@dataclass(frozen=True, slots=True)
class CaptureReason:
    """Why a signature runs in a lower mode.

    Attributes:
        code: The kind of reason.
        message: What was met.
        location: ``file:line`` of the code that caused it, where that is known.
        hint: What would change it.
        in_update: Whether only the update stands in the way, so that forward and backward can
            still be captured.
    """

    code: ReasonCode
    message: str
    location: str | None = None
    hint: str = ""
    in_update: bool = False

    @classmethod
    def of(
        cls,
        code: ReasonCode,
        message: str,
        location: str | None = None,
        *,
        hint: str = "",
        in_update: bool = False,
    ) -> CaptureReason:
        """Return a reason, with the usual hint of its code unless another is given."""
        return cls(code, message, location, hint or _HINTS.get(code, ""), in_update)

    def __str__(self) -> str:
        place = f" at {self.location}" if self.location else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.code}: {self.message}{place}{hint}"


class CaptureAbandoned(Exception):
    """Ends an attempt to capture from the inside, with the reason."""

    def __init__(self, reason: CaptureReason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def announce(mode: Mode, reason: CaptureReason) -> None:
    """Write the one line about a descent."""
    _logger.warning("capture: falling back to %s: %s", mode, reason)


def reason_of(error: BaseException) -> CaptureReason:
    """Return the reason behind an exception that ended a capture.

    torch raises again when the broken capture ends; the cause is the first of the chain.
    """
    chain = _chain(error)
    for link in chain:
        if isinstance(link, CaptureAbandoned):
            return link.reason
    if is_gpu_oom(error):
        return CaptureReason.of(ReasonCode.OOM, "GPU memory ran out during the capture")
    first = chain[-1]
    text = " ".join(str(first).split("\n", maxsplit=1)[0].split())[:200]
    return CaptureReason.of(
        _code_of([str(link) for link in chain]),
        f"{type(first).__name__}: {text}",
        user_location(traceback.walk_tb(first.__traceback__)),
    )


def _code_of(texts: list[str]) -> ReasonCode:
    patterns = (
        ("Cannot copy between CPU and CUDA tensors during CUDA graph capture", "cpu_tensor_op"),
        ("Offset increment outside graph capture", "rng_generator"),
        ("generator", "rng_generator"),
        ("capturable", "optimizer_not_capturable"),
        ("dependency created on uncaptured work", "stream_mismatch"),
        ("StreamCaptureIsolation", "stream_mismatch"),
        ("StreamCaptureUnsupported", "host_sync"),
        ("operation not permitted when stream is capturing", "host_sync"),
    )
    for pattern, code in patterns:
        if any(pattern in text for text in reversed(texts)):
            return ReasonCode(code)
    return ReasonCode.CUDA_ERROR


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and all(link is not seen for seen in chain):
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def user_location(frames: object = None) -> str | None:
    """Return ``file:line`` of the innermost frame that is code of the user.

    Args:
        frames: Pairs of frame and line, outermost first; by default the running stack.
    """
    if frames is None:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to walk it
        while frame is not None:
            if not _is_framework(frame.f_code.co_filename):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return None
    found = None
    for frame, line in frames:  # type: ignore[attr-defined] # an iterator of walk_tb
        if not _is_framework(frame.f_code.co_filename):
            found = f"{frame.f_code.co_filename}:{line}"
    return found


_FRAMEWORK = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parents[1]),
    str(Path(traceback.__file__).parent / "contextlib.py"),
    "<",
)


def _is_framework(file: str) -> bool:
    return file.startswith(_FRAMEWORK)
