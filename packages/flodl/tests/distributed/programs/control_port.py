"""A control port on loopback with a core that remembers what it was given."""

import queue
import socket
import threading
import time

from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.config.timeouts import Timeouts
from flodl.distributed.controller.commands import Finish
from flodl.distributed.serving.contract import ServerOptions
from flodl.distributed.serving.journal import ControllerJournal
from flodl.distributed.serving.plain_door import plain_door
from flodl.distributed.serving.server import ControllerServer

TOKEN = "a-token-of-the-run"


class RecordingCore:
    """Answers each event with the commands that were laid out for it, and remembers it."""

    def __init__(self):
        self.events = queue.Queue()
        self.seen = []
        self.answers = {}

    def handle(self, event, now):
        self.seen.append(event)
        self.events.put(event)
        answer = self.answers.get(type(event))
        return [] if answer is None else answer(event)

    def next_deadline(self):
        return None

    def to_state(self):
        return {"events": len(self.seen)}

    def wait_for(self, kind, timeout_s=10.0):
        """Return the next event of a kind; others before it are passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            event = self.events.get(timeout=max(0.01, deadline - time.monotonic()))
            if isinstance(event, kind):
                return event


class RunningController:
    """A server in a thread, to be talked to over its port."""

    def __init__(self, folder, core, **options):
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.core, self.journal_file = core, folder / "journal"
        place = RunPlace(run="run-1", nonce="nonce-1", run_dir=str(folder))
        timeouts = Timeouts(heartbeat=0.05, drain=1.0)
        values = {
            "place": place,
            "token": TOKEN,
            "timeouts": timeouts,
            "launcher_is_expected": False,
            **options,
        }
        self.server = ControllerServer(
            core,
            ServerOptions(**values),
            self._open,
            journal=ControllerJournal(self.journal_file),
        )
        self.finish = None
        self._listener, self._door = listener, []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _open(self, extension):
        self._door.append(plain_door(self._listener)(extension))
        return self._door[0]

    def _run(self):
        self.finish = self.server.run()

    def hang_up(self):
        """Close the port, as a controller's death does."""
        self._door[0].stop()

    def end(self):
        from flodl.distributed.controller.events import AbortRequested

        self.core.answers[AbortRequested] = lambda event: [Finish(reason="aborted")]
        self.server.put(AbortRequested())
        self.join()

    def join(self):
        self._thread.join(15.0)
        assert not self._thread.is_alive()
