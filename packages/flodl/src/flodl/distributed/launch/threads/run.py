"""A run whose ranks are threads, as its launcher holds it."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable

from flodl.distributed.controller.commands import Command, Finish, StateChanged
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import Event, StopRequested
from flodl.distributed.launch.local import Ending
from flodl.distributed.launch.run_folder import RunFolder, new_run
from flodl.distributed.launch.threads.director import Director
from flodl.distributed.launch.threads.host import ThreadHost
from flodl.distributed.launch.threads.link import OpenGate
from flodl.distributed.serving.desk import Note
from flodl.distributed.serving.server import launcher_note
from flodl.distributed.worker.job import Job

_logger = logging.getLogger(__name__)


class ThreadRun:
    """What ``LocalRun`` is to processes, for threads of this process.

    Args:
        core: Decides.
        job: What every rank trains.
        count: Ranks.
        receive: Called with each note for the launcher but the last, in a thread of this object.
    """

    def __init__(
        self, core: Controller, job: Job, count: int, receive: Callable[[Note], None]
    ) -> None:
        self.run = new_run()
        self.folder = RunFolder.default(self.run)
        self._job, self._count = job, count
        self._receive = receive
        self._timeouts = core.run.settings.timeouts
        self._director = Director(core, self._made_host, self._publish)
        self._finish: Note | None = None
        self._ending: Ending | None = None
        self._over = threading.Event()
        self._is_aborted = False
        self._thread = threading.Thread(target=self._supervise, name="flodl-controller")

    def start(self) -> None:
        """Start controller and ranks; returns at once."""
        atexit.register(self.discard)
        self._thread.start()

    def stop(self, *, save: bool = True, reason: str = "graceful_shutdown") -> None:
        """Ask for an end in good order."""
        self._director.put(StopRequested(save=save, reason=reason))

    def abort(self) -> None:
        """End all ranks at the next point that they come to."""
        self._is_aborted = True

    def wait(self, timeout_s: float | None = None) -> Ending | None:
        """Wait for the end of the run and of its threads; ``None`` after the time."""
        if not self._over.wait(timeout_s):
            return None
        self._thread.join()
        return self._ending

    def discard(self) -> None:
        """Remove the folder of a run that is over, once its results were read. Idempotent."""
        if self._over.is_set():
            self.folder.remove()
            atexit.unregister(self.discard)

    def _made_host(self, post: Callable[[Event], None]) -> ThreadHost:
        return ThreadHost(
            run=self.run,
            job=lambda _number, _gate: self._job,
            gate=lambda _number: OpenGate(),
            count=self._count,
            post=post,
            timeouts=self._timeouts,
            run_dir=self.folder.path,
        )

    def _supervise(self) -> None:
        reason = "aborted"
        try:
            self._director.host.hello()
            while self._finish is None and not self._is_aborted:
                self._director.turn()
        except Exception as error:
            reason = f"the controller raised {type(error).__name__}: {error}"
            _logger.exception("the controller of threads raised")
        finally:
            left = self._director.host.end()
            if left:
                _logger.error("threads that do not end: %s", ", ".join(left))
            self._ending = Ending(
                finish=self._finish, reason="" if self._finish is not None else reason
            )
            self._over.set()

    def _publish(self, command: Command) -> None:
        if isinstance(command, StateChanged):
            self._tell({"op": "state", "state": command.state, "reason": command.reason})
            return
        note = launcher_note(command)
        if isinstance(command, Finish):
            self._finish = note
        elif note is not None:
            self._tell(note)

    def _tell(self, note: Note) -> None:
        try:
            self._receive(note)
        except Exception:
            # the thread must live to hear the last word
            _logger.exception("a note of the controller could not be taken: %s", note.get("op"))
