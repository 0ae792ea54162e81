"""Finds who touched a GPU before a run over several processes, and lets nobody touch one after.

A process that starts or directs ranks must own no GPU context: it would hold memory on a device
that belongs to a rank, and copies of it could not use GPUs at all.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

from flodl.core.errors import CudaBeforeRunError, LauncherCudaError
from flodl_sys import names

_logger = logging.getLogger(__name__)
_ADVICE = (
    "ask flodl.sys.detect_gpus() for the GPUs of this machine, which opens none; create tensors "
    "and models on a GPU only within the functions that the run calls"
)
_OWN_FRAMES = 1


class CudaRecorder:
    """Stands before the function that initializes CUDA, and keeps the stack of its first call."""

    def __init__(self) -> None:
        self._original: Callable[..., Any] | None = None
        self._stack: list[str] | None = None
        self._refusal: str | None = None

    def install(self) -> None:
        """Stand before that function; nothing where torch is not loaded, or CUDA initialized."""
        cuda = _torch_cuda()
        if cuda is None or self._original is not None or cuda.is_initialized():
            return
        self._original = cuda._lazy_init  # noqa: SLF001
        cuda._lazy_init = self._initialize  # noqa: SLF001

    def remove(self) -> None:
        """Put things back as they were."""
        cuda = _torch_cuda()
        if cuda is not None and self._original is not None:
            cuda._lazy_init = self._original  # noqa: SLF001
        self._original = self._stack = self._refusal = None

    def refuse(self, role: str) -> None:
        """From now on let every attempt to initialize CUDA fail.

        Args:
            role: What this process is, for the message.
        """
        self._refusal = role
        self.install()

    def check(self) -> None:
        """Check that this process has touched no GPU.

        Raises:
            CudaBeforeRunError: It has; the text shows where, if that was seen.
        """
        cuda = _torch_cuda()
        if cuda is None or not cuda.is_initialized():
            return
        if self._stack is None:
            where = "where is not known: it happened before flodl was imported"
        else:
            where = "it happened here:\n\n" + "".join(self._stack).rstrip()
        message = f"a GPU was touched before the run, in the process that starts the ranks; {where}"
        if names.ALLOW_CUDA_IN_LAUNCHER.get() == "1":
            _logger.warning("%s", message)
            return
        raise CudaBeforeRunError(
            message, hint=f"{_ADVICE}; {names.ALLOW_CUDA_IN_LAUNCHER.name}=1 allows it"
        )

    def _initialize(self, *args: Any, **kwargs: Any) -> Any:
        assert self._original is not None
        if self._refusal is not None:
            raise LauncherCudaError(
                f"a GPU was touched in the {self._refusal} of a run, which must own none",
                hint=_ADVICE,
            )
        original, cuda = self._original, _torch_cuda()
        self._stack = traceback.format_stack()[:-_OWN_FRAMES]
        result = original(*args, **kwargs)
        is_ours = cuda is not None and cuda._lazy_init == self._initialize  # noqa: SLF001
        if is_ours and cuda.is_initialized():
            cuda._lazy_init = original  # noqa: SLF001
        return result


def _torch_cuda() -> Any:
    return getattr(sys.modules.get("torch"), "cuda", None)


recorder = CudaRecorder()
"""The one of this process: there is one CUDA to initialize."""
