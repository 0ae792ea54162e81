"""A run whose launcher is gone, taken up again by another one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from flodl.core.errors import LaunchError
from flodl.distributed.launch.control import ControlLink
from flodl.distributed.launch.cuda_guard import recorder
from flodl.distributed.launch.local import Ending
from flodl.distributed.launch.run_folder import RunFolder, runs_folder
from flodl.distributed.serving.desk import Note
from flodl.distributed.worker.uplink import Endpoint

_POLL_S = 0.05
_LAST_WORD_S = 1.0
_SEE_OUT_S = 30.0


class AttachedRun:
    """Follows and directs a run that another process has started.

    It is used as a ``LocalRun`` is; what it cannot do is to start a controller again.

    Args:
        name: Identity of the run, or its folder.
        receive: Called with each note of the controller but the last.

    Raises:
        LaunchError: There is no such run, or its controller is gone.
    """

    def __init__(self, name: str, receive: Callable[[Note], None]) -> None:
        path = Path(name) if os.sep in name else runs_folder() / name
        if not path.is_dir():
            raise LaunchError(
                f"run {name!r}: there is no folder {path}",
                hint="the launcher of a run says its name when it starts",
            )
        self.folder = RunFolder(path)
        self._record = self.folder.read_record()
        self.run = self._record.run
        self.ordinal = self._record.ordinal
        self._is_temporary = path.parent == runs_folder()
        self._receive = receive
        self._finish: Note | None = None
        self._ending: Ending | None = None
        self._over = threading.Event()
        self._is_aborted = False
        self._requests: deque[Note] = deque()
        if not self._controller_lives():
            raise LaunchError(
                f"run {self.run}: its controller, process {self._record.controller_pid}, is gone",
                hint=f"what it left is in {path}; start the run again with resume_from",
            )
        self.endpoint = Endpoint(address=self._record.address, token=self._record.token)
        self._link = ControlLink(self.endpoint, self._on_note)
        self._thread = threading.Thread(target=self._supervise, name="flodl-launcher")

    def start(self) -> None:
        """Connect.

        Raises:
            CudaBeforeRunError: A GPU was touched in this process.
        """
        recorder.check()
        recorder.refuse("launcher")
        self._link.start()
        self._thread.start()

    def send(self, note: Note) -> None:
        """Tell the controller something."""
        self._link.send(note)

    def stop(self, *, save: bool = True, reason: str = "graceful_shutdown") -> None:
        """Ask for an end in good order."""
        self._requests.append({"op": "stop", "save": save, "reason": reason})

    def abort(self) -> None:
        """End all processes now."""
        self._is_aborted = True

    def wait(self, timeout_s: float | None = None) -> Ending | None:
        """Wait for the end of the run; ``None`` after the time."""
        if not self._over.wait(timeout_s):
            return None
        self._thread.join()
        return self._ending

    def discard(self) -> None:
        """Remove the folder of a run in good order, once its results were read. Idempotent."""
        is_good = self._finish is not None and not self._finish.get("is_failed")
        if self._is_temporary and self._over.is_set() and (is_good or self._is_aborted):
            self.folder.remove()

    def _supervise(self) -> None:
        reason = self._follow()
        if self._is_aborted:
            self._kill()
        self._see_out()
        tail = "" if self._finish is not None else self.folder.controller_tail()
        self._link.close()
        self.folder.forget()
        self._ending = Ending(finish=self._finish, reason=reason, log_tail=tail)
        self._over.set()

    def _follow(self) -> str:
        while self._finish is None:
            if self._is_aborted:
                return "aborted"
            while self._requests:
                self._link.send(self._requests.popleft())
            if not self._controller_lives():
                return self._last_look()
            time.sleep(_POLL_S)
        return ""

    def _see_out(self) -> None:
        """Wait until the processes of a finished run have ended."""
        give_up = time.monotonic() + _SEE_OUT_S
        while self._finish is not None and time.monotonic() < give_up:
            host = _read(self._record.host_pid, "cmdline")
            if not self._controller_lives() and b"flodl.distributed.hostd" not in host:
                return
            time.sleep(_POLL_S)

    def _last_look(self) -> str:
        time.sleep(_LAST_WORD_S)  # its last word may still be on the way
        return "" if self._finish is not None else "controller_lost"

    def _on_note(self, note: Note) -> None:
        if note.get("op") == "finish":
            self._finish = note
            self._link.send({"op": "bye"})
            self._link.let_go()
        else:
            self._receive(note)

    def _controller_lives(self) -> bool:
        # the number may belong to another process by now, which was not told of this run
        return self.run.encode() in _read(self._record.controller_pid, "environ")

    def _kill(self) -> None:
        host, controller = self._record.host_pid, self._record.controller_pid
        if b"flodl.distributed.hostd" in _read(host, "cmdline"):
            _signal(host, signal.SIGTERM)
            give_up = time.monotonic() + 2.0
            while _read(host, "cmdline") and time.monotonic() < give_up:
                time.sleep(_POLL_S)
            _signal(host, signal.SIGKILL)
        if self._controller_lives():
            _signal(controller, signal.SIGKILL)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
