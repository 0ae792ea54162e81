"""Starts ranks: as copies of a zygote while that can be had, else each in a new interpreter."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from flodl.core.log import warn_once
from flodl.distributed.hostd.birth import BirthOrder
from flodl.distributed.hostd.zygote import HEADER
from flodl_sys import names

_logger = logging.getLogger(__name__)
_ANSWER_S = 10.0
_START = (
    "import sys; sys.flags.safe_path or sys.path.pop(0); "
    "from flodl.distributed.hostd.zygote import main; main()"
)


def zygote_is_wanted() -> bool:
    """Return whether ranks are to be copies of a zygote on this system."""
    chosen = names.ZYGOTE.get()
    return sys.platform == "linux" and chosen != "0"


class Nursery:
    """Starts ranks as children of this process.

    Args:
        options: Interpreter options of the program, for the zygote.
        use_zygote: Whether to keep a zygote at all.
        environ: Environment of the zygote; by default that of this process.
    """

    def __init__(
        self,
        options: Sequence[str] = (),
        *,
        use_zygote: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._options = tuple(options)
        self._uses_zygote = use_zygote
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready: asyncio.Task[bool] | None = None
        self._turn = asyncio.Lock()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def zygote_pid(self) -> int | None:
        """Process id of the zygote, ``None`` where there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the zygote; its imports go on while this process does other things.

        No event loop is needed yet, so that it can be the first thing that a daemon does.
        """
        if not self._uses_zygote:
            return
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        daemon = os.getpid()
        argv = [sys.executable, *self._options, "-c", _START, str(daemon), str(theirs.fileno())]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env=self._environ,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        self._control = ours

    async def bear(
        self, order: BirthOrder, stdio: tuple[int, int, int], fds: tuple[int, int]
    ) -> int:
        """Start a rank and return its process id; the descriptors stay the caller's.

        Args:
            order: What to run.
            stdio: Standard input, output and error of the rank.
            fds: Its link and its progress page.

        Raises:
            OSError: The system starts no process.
        """
        if self._control is not None and self._ready is None:
            self._ready = asyncio.create_task(self._wait_until_ready())
        if self._ready is not None and await self._ready:
            pid = await self._copy(order, stdio, fds)
            if pid is not None:
                return pid
        return self._execute(order, stdio, fds)

    def forget(self, pid: int, status: int) -> None:
        """Take note that a child was reaped elsewhere."""
        child = self._children.pop(pid, None)
        if child is not None:
            child.returncode = os.waitstatus_to_exitcode(status)
        if self._process is not None and self._process.pid == pid:
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._process = None

    async def close(self) -> None:
        """End the zygote; it is reaped like every other child."""
        if self._ready is not None:
            self._ready.cancel()
            await asyncio.gather(self._ready, return_exceptions=True)
            self._ready = None
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()

    async def _wait_until_ready(self) -> bool:
        answer = await self._answer()
        if answer is None:
            warn_once(_logger, "the zygote ended in its imports; ranks start by themselves")
            return False
        return bool(answer.get("ready"))

    async def _copy(
        self, order: BirthOrder, stdio: tuple[int, int, int], fds: tuple[int, int]
    ) -> int | None:
        async with self._turn:
            if self._control is None:
                return None
            body = order.to_json().encode()
            loop = asyncio.get_running_loop()
            try:
                socket.send_fds(self._control, [HEADER.pack(len(body))], [*stdio, *fds])
                await loop.sock_sendall(self._control, body)
                answer = await asyncio.wait_for(self._answer(), _ANSWER_S)
            except (OSError, TimeoutError) as error:
                answer = {"refused": str(error) or type(error).__name__}
                self._abandon()
        if answer is None:
            self._abandon()
            answer = {"refused": "it ended"}
        if answer.get("pid"):
            return int(str(answer["pid"]))
        warn_once(
            _logger,
            "the zygote cannot be copied: %s; ranks start by themselves",
            answer.get("refused", "its copy did not start"),
        )
        return None

    def _abandon(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()

    async def _answer(self) -> dict[str, object] | None:
        assert self._control is not None
        header = await self._receive(HEADER.size)
        if header is None:
            return None
        body = await self._receive(HEADER.unpack(header)[0])
        return None if body is None else json.loads(body)

    async def _receive(self, size: int) -> bytes | None:
        assert self._control is not None
        loop, body = asyncio.get_running_loop(), b""
        while len(body) < size:
            try:
                part = await loop.sock_recv(self._control, size - len(body))
            except OSError:
                part = b""
            if not part:
                return None
            body += part
        return body

    def _execute(self, order: BirthOrder, stdio: tuple[int, int, int], fds: tuple[int, int]) -> int:
        told = order.with_fds(link=fds[0], page=fds[1])
        environ = {"PYTHONUNBUFFERED": "1", **told.full_environ()}
        if order.place.threads is not None:
            environ.setdefault("OMP_NUM_THREADS", str(order.place.threads))
        child = subprocess.Popen(
            told.argv(),
            cwd=order.cwd,
            env=environ,
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            pass_fds=fds,
            start_new_session=True,
        )
        self._children[child.pid] = child
        return child.pid
