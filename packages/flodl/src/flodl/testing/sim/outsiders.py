"""What goes wrong between hosts: a network that stalls, and callers that have no business here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

import torch

from flodl.core.errors import JoinRejected
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.config import Timeouts
from flodl.distributed.launch.run_folder import RunRecord
from flodl.distributed.protocol import Frame
from flodl.distributed.protocol.codec import PROTOCOL
from flodl.distributed.protocol.messages import Hello, Reject
from flodl.distributed.protocol.values import Device, Offer, Versions
from flodl.distributed.worker.uplink import Endpoint, Uplink

_CHUNK = 1 << 16
_POLL_S = 0.02
_ANSWER_S = 10.0


def knock(kind: Literal["dup_join", "bad_token"], place: RunPlace, record: RunRecord) -> str:
    """Dial the controller as somebody who must not be let in, and return how it refuses.

    Args:
        kind: ``"dup_join"``: another host offers the rank's own place, which is taken.
            ``"bad_token"``: the token is wrong.
        place: The rank's.
        record: Where the controller is, and its token.

    Returns:
        The refusal in one word, as ``JoinRejected.code``.

    Raises:
        RuntimeError: The controller has let it in, or gave no answer.
    """
    return asyncio.run(_knock(kind, place, record))


async def _knock(kind: str, place: RunPlace, record: RunRecord) -> str:
    answers: asyncio.Queue[Frame] = asyncio.Queue()
    token = record.token if kind == "dup_join" else f"not {record.token}"
    host = f"not {place.host}"
    uplink = Uplink(
        Endpoint(address=record.address, token=token),
        host,
        receive=answers.put_nowait,
        confirm=lambda _sent_at: None,
        timeouts=Timeouts(),
    )
    device = Device(uuid="cpu", name="CPU")
    offer = Offer(uid=place.uid, incarnation=place.incarnation, device=device)
    versions = Versions(flodl="0", torch=torch.__version__, python="3")
    hello = Hello(host=host, offers=(offer,), versions=versions, proto=PROTOCOL)
    dialing = asyncio.create_task(uplink.connect(lambda: uplink.send(hello, 0)))
    answer = asyncio.create_task(answers.get())
    try:
        await asyncio.wait(
            (dialing, answer), timeout=_ANSWER_S, return_when=asyncio.FIRST_COMPLETED
        )
        if dialing.done() and isinstance(error := dialing.exception(), JoinRejected):
            return error.code
        if answer.done() and isinstance(answer.result().message, Reject):
            return cast("Reject", answer.result().message).kind
        said = answer.result().message if answer.done() else "nothing"
        raise RuntimeError(f"{kind} at {record.address}: the controller answered {said}")
    finally:
        for task in (dialing, answer):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, JoinRejected):
                await task


class Relay:
    """Stands between the host daemon and the controller, and can hold back what they say.

    Args:
        folder: A file ``stalled-<n>`` with a number of seconds in it stalls the relay once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._target = ("", 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_open = threading.Event()
        self._is_open.set()
        self._is_over = False
        self._sockets: list[socket.socket] = []

    @contextlib.contextmanager
    def to(self, address: str) -> Iterator[str]:
        """Pass on to an address, within the block; gives the address to dial instead."""
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        for target in (self._accept, self._watch):
            threading.Thread(target=target, name="flodl-sim-relay", daemon=True).start()
        try:
            yield f"127.0.0.1:{self._listener.getsockname()[1]}"
        finally:
            self._is_over = True
            self._is_open.set()
            for each in (self._listener, *self._sockets):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                continue
            self._sockets += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(_CHUNK):
                self._is_open.wait()
                target.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, target):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _watch(self) -> None:
        while not self._is_over:
            for file in self._folder.glob("stalled-*"):
                seconds = float(file.read_text())
                file.unlink()
                self._is_open.clear()
                time.sleep(seconds)
                self._is_open.set()
            time.sleep(_POLL_S)
