"""A process that has imported everything and done nothing, to be copied once per rank.

The host daemon starts it and sends one order per rank. Each copy is made by a double fork, so that
the daemon adopts it: the rank's end is reported to the daemon, and the zygote's own end takes no
rank along. Before each fork the zygote checks that it still may be copied, and says so if not.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from flodl.distributed.cluster.kinship import die_with_parent
from flodl.distributed.hostd.birth import BirthOrder

MODULES = (
    "torch",
    "torch.distributed",
    "torch._dynamo",  # torch's optimizers import it at their first step, which takes seconds
)
_OWN_MODULE = "flodl.trainer.ranks.rank"
HEADER = struct.Struct("!I")
_FDS_PER_ORDER = 5
_GPU_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


@dataclass(frozen=True, slots=True)
class _Request:
    order: BirthOrder
    stdin: int
    stdout: int
    stderr: int
    link: int
    page: int

    @property
    def fds(self) -> tuple[int, ...]:
        return self.stdin, self.stdout, self.stderr, self.link, self.page


class Zygote:
    """Serves orders on a socket until it closes.

    Args:
        control: Connection to the host daemon.
        daemon: Process that adopts the copies.
    """

    def __init__(self, control: socket.socket, daemon: int) -> None:
        self._control = control
        self._daemon = daemon
        self._known_threads = 0

    def prepare(self, modules: tuple[str, ...] = MODULES) -> None:
        """Import what every rank needs, and tell the daemon how many threads that left."""
        # no garbage is made by imports, and what is never collected again stays shared
        gc.disable()
        for module in modules:
            importlib.import_module(module)
        with contextlib.suppress(ImportError):  # each rank that needs it will say what is wrong
            importlib.import_module(_OWN_MODULE)
        gc.freeze()
        self._known_threads = _thread_count()
        self._answer({"ready": True, "threads": self._known_threads})

    def serve(self) -> BirthOrder | None:
        """Make copies; returns the order in each of them, and ``None`` in the zygote at the end."""
        while True:
            request = self._receive()
            if request is None:
                return None
            reason = self.trouble()
            if reason is not None:
                _close(request.fds)
                self._answer({"refused": reason})
                continue
            pid = self._fork(request)
            if pid is None:
                return request.order.with_fds(link=request.link, page=request.page)
            _close(request.fds)
            self._answer({"pid": pid})

    def trouble(self) -> str | None:
        """Return why this process must not be copied any more, ``None`` while it may."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            return "a GPU runtime was initialized in it"
        opened = next((name for name in _open_files() if name.startswith(_GPU_FILES)), None)
        if opened is not None:
            return f"it holds {opened} open"
        threads = _thread_count()
        if threads > self._known_threads:
            return f"it has {threads} threads, {self._known_threads} after its imports"
        return None

    def _fork(self, request: _Request) -> int | None:
        sys.stdout.flush()
        sys.stderr.flush()
        read_end, write_end = os.pipe()
        middle = os.fork()
        if middle:
            os.close(write_end)
            with os.fdopen(read_end, "rb") as told:
                pid = int(told.read() or 0)
            os.waitpid(middle, 0)
            return pid
        os.close(read_end)
        rank = os.fork()
        if rank:
            os.write(write_end, str(rank).encode())
            os._exit(0)
        os.close(write_end)
        self._control.close()
        os.setsid()
        die_with_parent(self._daemon)
        for number, fd in enumerate((request.stdin, request.stdout, request.stderr)):
            os.dup2(fd, number)
            os.close(fd)
        return None

    def _receive(self) -> _Request | None:
        header, fds, _, _ = socket.recv_fds(self._control, HEADER.size, _FDS_PER_ORDER)
        if len(header) < HEADER.size or len(fds) < _FDS_PER_ORDER:
            _close(tuple(fds))
            return None
        body = b""
        (size,) = HEADER.unpack(header)
        while len(body) < size:
            part = self._control.recv(size - len(body))
            if not part:
                _close(tuple(fds))
                return None
            body += part
        return _Request(BirthOrder.from_json(body.decode()), *fds)

    def _answer(self, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        self._control.sendall(HEADER.pack(len(text)) + text)


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


def _thread_count() -> int:
    tasks = Path("/proc/self/task")
    if tasks.is_dir():
        return len(list(tasks.iterdir()))
    import threading

    return threading.active_count()


def _open_files() -> list[str]:
    names = []
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            names.append(str(entry.readlink()))
        except OSError:  # the descriptor that listed the folder
            continue
    return names


def main() -> None:
    """Be the zygote of the daemon that started this process; in a copy, be its rank."""
    daemon, control = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(daemon)
    zygote = Zygote(control, daemon)
    zygote.prepare()
    order = zygote.serve()
    if order is not None:
        order.assume()
        order.enter()
