"""A run on this host, as its launcher holds it: controller, host daemon, and their ends."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flodl.core.errors import LaunchError
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.collective.segments import remove_kept
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.hostd.command import Command
from flodl.distributed.hostd.options import HostOptions
from flodl.distributed.launch.control import ControlLink
from flodl.distributed.launch.cuda_guard import recorder
from flodl.distributed.launch.payload import write_payload
from flodl.distributed.launch.processes import (
    bound_listener,
    start_controller,
    start_daemon,
)
from flodl.distributed.launch.run_folder import RunFolder, RunRecord, new_run
from flodl.distributed.protocol.values import Device
from flodl.distributed.serving.desk import Note
from flodl.distributed.worker.uplink import Endpoint

_logger = logging.getLogger(__name__)
_POLL_S = 0.02
_ANY_HOST = frozenset({"0.0.0.0", "::"})  # noqa: S104 (recognized here)
_CONTROLLER_STARTS = 4
_KILL_S = 2.0
_LAST_WORD_S = 1.0
_BEFORE = frozenset({"", "waiting", "staging"})
"""States of a run that has not begun."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalPlan:
    """What a run on this host consists of."""

    devices: tuple[Device, ...] = ()
    """One rank is started for each; none where another launcher starts the ranks."""
    vendor: str = "cpu"
    command: Command | None = None
    """Program to run again in controller and ranks; ``None``: they take the payload."""
    payload: Mapping[str, object] = field(default_factory=dict)
    entry: str = ""
    """``module:function`` that takes the payload's file, in controller and ranks."""
    ordinal: int = 0
    results: Path | None = None
    """Folder with the results of earlier ``run()`` calls."""
    run_dir: Path | None = None
    """Folder of logs and journal; ``None`` makes one, which ``discard`` removes."""
    listen_host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    respawn: int = 2
    threads: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    is_rank: bool = False
    """Whether the launcher is a rank as well, and so has a device of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a run ended, as far as its processes know."""

    finish: Note | None
    """The controller's last word; ``None`` where it gave none."""
    reason: str = ""
    """What happened where the controller gave no last word."""
    log_tail: str = ""
    """Last lines of the controller, in that case."""


class LocalRun:
    """Starts the processes of a run, follows them, and sees them out.

    Args:
        plan: What to start.
        receive: Called with each note of the controller but the last, in a thread of this object.
    """

    def __init__(self, plan: LocalPlan, receive: Callable[[Note], None]) -> None:
        self._plan = plan
        self._receive = receive
        self.run = new_run()
        self.nonce = secrets.token_hex(8)
        self._token = plan.token or secrets.token_urlsafe(16)
        self._listener = bound_listener(plan.listen_host, plan.port)
        self._is_temporary = plan.run_dir is None
        try:
            self.folder = (
                RunFolder.default(self.run) if plan.run_dir is None else _given(plan.run_dir)
            )
        except BaseException:
            self._listener.close()
            raise
        self.port: int = self._listener.getsockname()[1]
        host = "127.0.0.1" if plan.listen_host in _ANY_HOST else plan.listen_host
        self.endpoint = Endpoint(address=f"{host}:{self.port}", token=self._token)
        self._link = ControlLink(self.endpoint, self._on_note)
        self._controller: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        self._attempt = 0
        self._finish: Note | None = None
        self._ending: Ending | None = None
        self._over = threading.Event()
        self._is_aborted = False
        self._state = ""
        self._daemon_ended_at = 0.0
        self._requests: deque[Note] = deque()
        # it holds the program open until the run is over, even if nobody waits for that
        self._thread = threading.Thread(target=self._supervise, name="flodl-launcher")

    def start(self) -> None:
        """Start controller and host daemon; returns at once.

        Raises:
            CudaBeforeRunError: A GPU was touched in this process.
            LaunchError: An object cannot be pickled, or a process cannot be started.
        """
        try:
            if not self._plan.is_rank:
                recorder.check()
            if self._plan.command is None:
                write_payload(self._payload_file, self._plan.payload)
            if self._plan.devices:
                self._daemon = self._start_daemon()
            self._controller = self._start_controller()
            self._write_record()
        except BaseException:
            self._kill_all()
            self._clean_up()
            if self._is_temporary:
                self.folder.remove()
            raise
        atexit.register(self.discard)
        if not self._plan.is_rank:
            recorder.refuse("launcher")
        self._link.start()
        self._thread.start()

    def send(self, note: Note) -> None:
        """Tell the controller something."""
        self._link.send(note)

    def stop(self, *, save: bool = True, reason: str = "graceful_shutdown") -> None:
        """Ask for an end in good order."""
        # a signal handler calls this: it may interrupt a thread that is just sending
        self._requests.append({"op": "stop", "save": save, "reason": reason})

    def abort(self) -> None:
        """End all processes now."""
        self._is_aborted = True

    def wait(self, timeout_s: float | None = None) -> Ending | None:
        """Wait for the end of the run, and of all its processes; ``None`` after the time."""
        if not self._over.wait(timeout_s):
            return None
        self._thread.join()
        return self._ending

    def discard(self) -> None:
        """Remove the folder of a run in good order, once its results were read. Idempotent.

        A folder that was given stays, and so does that of a run that failed, for its logs. The end
        of the program does the same.
        """
        is_good = self._finish is not None and not self._finish.get("is_failed")
        if self._is_temporary and self._over.is_set() and (is_good or self._is_aborted):
            self.folder.remove()
            atexit.unregister(self.discard)

    # ------------------------------------------------------------ processes

    @property
    def _payload_file(self) -> Path:
        return self.folder.path / "payload.pkl"

    def _start_daemon(self) -> subprocess.Popen[bytes]:
        plan = self._plan
        options = HostOptions(
            run=self.run,
            nonce=self.nonce,
            address=self.endpoint.address,
            token=self._token,
            host=socket.gethostname(),
            devices=plan.devices,
            run_dir=str(self.folder.path),
            cwd=str(Path.cwd()),
            command=plan.command,
            payload=None if plan.command is not None else str(self._payload_file),
            entry=plan.entry or None,
            ordinal=plan.ordinal,
            results=_text(plan.results),
            environ=dict(plan.environ),
            threads=plan.threads,
            timeouts=plan.timeouts,
            respawn=plan.respawn,
            vendor=plan.vendor,
        )
        return start_daemon(options)

    def _start_controller(self) -> subprocess.Popen[bytes]:
        plan, fd = self._plan, self._listener.fileno()
        place = RunPlace(
            run=self.run,
            nonce=self.nonce,
            run_dir=str(self.folder.path),
            ordinal=plan.ordinal,
            results=_text(plan.results),
            payload=None if plan.command is not None else str(self._payload_file),
            entry=plan.entry or None,
            host=socket.gethostname(),
            listen_fd=fd,
            address=self.endpoint.address,
            attempt=self._attempt,
        )
        return start_controller(place, plan.command, self._token, self.folder.controller_log)

    def _write_record(self) -> None:
        assert self._controller is not None
        self.folder.write_record(
            RunRecord(
                run=self.run,
                nonce=self.nonce,
                address=self.endpoint.address,
                token=self._token,
                ordinal=self._plan.ordinal,
                controller_pid=self._controller.pid,
                host_pid=0 if self._daemon is None else self._daemon.pid,
            )
        )

    def _supervise(self) -> None:
        try:
            reason = self._follow()
            self._see_out()
            tail = "" if self._finish is not None else self.folder.controller_tail()
            self._ending = Ending(finish=self._finish, reason=reason, log_tail=tail)
        finally:
            self._kill_all()
            self._clean_up()
            self._link.close()
            self._over.set()

    def _follow(self) -> str:
        """Watch the processes until the controller's last word, or until there can be none."""
        while self._finish is None:
            if self._is_aborted:
                return "aborted"
            while self._requests:
                self._link.send(self._requests.popleft())
            if self._controller is not None and self._controller.poll() is not None:
                reason = self._revive(self._controller.returncode)
                if reason:
                    return reason
            if self._daemon_is_missed():
                code = None if self._daemon is None else self._daemon.returncode
                return f"the host daemon ended with status {code}"
            time.sleep(_POLL_S)
        return ""

    def _daemon_is_missed(self) -> bool:
        """Return whether the host daemon has ended, and the controller cannot make an end of it."""
        if self._daemon is None or self._daemon.poll() is None:
            return False
        now = time.monotonic()
        self._daemon_ended_at = self._daemon_ended_at or now
        # before the run began nobody misses it; later the controller finds its ranks lost
        patience = 0.0 if self._state in _BEFORE else self._plan.timeouts.dead + _KILL_S
        return now - self._daemon_ended_at > patience + _LAST_WORD_S

    def _revive(self, code: int) -> str:
        """Start a controller again that has ended; return why not, where that cannot help."""
        time.sleep(_POLL_S)  # its last word may still be on the way
        if self._finish is not None:
            return ""
        if not self._link.was_connected.is_set():
            return f"the controller ended with status {code} before the run began"
        self._attempt += 1
        if self._attempt >= _CONTROLLER_STARTS:
            return f"controller_lost: it ended {self._attempt} times, at last with status {code}"
        _logger.warning("the controller ended with status %d; it is started again", code)
        self._controller = self._start_controller()
        self._write_record()
        return ""

    def _see_out(self) -> None:
        """Give the processes of a run that is over the time to end by themselves."""
        patience = self._plan.timeouts.drain
        waited_for = [self._daemon, self._controller]
        if self._finish is None:
            if self._state in _BEFORE:
                return
            # without a controller ranks save what they have, once their daemon's grace is over
            patience += self._plan.timeouts.host_lease + self._plan.timeouts.controller_grace
            waited_for = [self._daemon]
            self._listener.close()
        give_up = time.monotonic() + patience
        while time.monotonic() < give_up and not self._is_aborted:
            if not any(process and process.poll() is None for process in waited_for):
                return
            time.sleep(_POLL_S)

    def _kill_all(self) -> None:
        """End what still runs: the daemon takes its ranks along, also when it is killed."""
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(_KILL_S)
        for process in (self._daemon, self._controller):
            if process is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _clean_up(self) -> None:
        self._listener.close()
        self.folder.forget()
        self._payload_file.unlink(missing_ok=True)
        remove_kept(f"flodl-{self.run}-")

    def _on_note(self, note: Note) -> None:
        if note.get("op") == "finish":
            self._finish = note
            self._link.send({"op": "bye"})
            self._link.let_go()
            return
        if note.get("op") == "state":
            self._state = str(note.get("state"))
        try:
            self._receive(note)
        except Exception:
            # the thread must live to hear the last word
            _logger.exception("a note of the controller could not be taken: %s", note.get("op"))


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)


def _given(path: Path) -> RunFolder:
    try:
        return RunFolder(path.absolute())
    except OSError as error:
        raise LaunchError(
            f"run_dir={str(path)!r}: it cannot be made: {error.strerror}",
            hint="choose a folder that exists or can be made",
        ) from error
