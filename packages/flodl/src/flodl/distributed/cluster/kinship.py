"""Processes that must not outlive each other: what Linux offers for that, and nothing elsewhere."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ADOPTION_S = 10.0
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def become_subreaper() -> bool:
    """Adopt the orphans among this process's descendants; false where the system cannot."""
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent(parent: int) -> None:
    """Have this process killed when ``parent`` ends, now if it has; waits for an adoption.

    Where the system cannot, a rank notices the end of its link instead.
    """
    give_up = time.monotonic() + _ADOPTION_S
    while os.getppid() != parent:
        if time.monotonic() > give_up or not _exists(parent):
            os._exit(1)
        time.sleep(0.0005)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _exists(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
