"""Answers the ranks' store operations; those that wait are answered when their keys are there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from flodl.distributed.collective.errors import CollectiveError
from flodl.distributed.collective.store import StoreTable
from flodl.distributed.protocol.messages import StoreReply, StoreRequest

TIMEOUT = "timeout"
"""Error of a reply whose keys did not come in time; ranks know it by this word."""

_KEPT_GENERATIONS = 2
Answer = Callable[[str, int, StoreReply], None]
_Token = tuple[str, int]


class StoreServer:
    """The store of a run, in the server's loop.

    Args:
        answer: Sends a reply to a member under a generation.
        run: Identity of the run, with which the keys of its generations begin.
    """

    def __init__(self, answer: Answer, run: str = "") -> None:
        self._answer = answer
        self._run = run
        self._nonces: deque[str] = deque()
        self._table: StoreTable[_Token] = StoreTable()
        self._parked: dict[_Token, tuple[int, StoreRequest, asyncio.TimerHandle]] = {}

    def ask(self, member: str, gen: int, request: StoreRequest) -> None:
        """Carry out an operation, and answer it now or when its keys are there."""
        self._forget_old()
        if not request.keys and request.op not in {"wait", "check"}:
            nothing = StoreReply(request_id=request.request_id, ok=False, error="no keys")
            self._answer(member, gen, nothing)
            return
        if request.op in {"get", "wait"}:
            self._wait(member, gen, request)
            return
        try:
            reply = self._do(request)
        except CollectiveError as error:
            reply = StoreReply(request_id=request.request_id, ok=False, error=error.message)
        self._answer(member, gen, reply)
        self._release()

    def begin(self, nonce: str) -> None:
        """Take note of a new generation: keys of those before the last are removed soon.

        Any thread may call it. Ranks that still form the last generation keep their keys.

        Args:
            nonce: What the keys of the generation have in their path.
        """
        if nonce not in self._nonces:
            self._nonces.append(nonce)

    def _forget_old(self) -> None:
        while len(self._nonces) > _KEPT_GENERATIONS:
            old = self._nonces.popleft()
            self._table.forget(f"{self._run}/{old}/")

    def close(self) -> None:
        """Stop the clocks of all that wait."""
        for _, _, timer in self._parked.values():
            timer.cancel()
        self._parked.clear()

    def _wait(self, member: str, gen: int, request: StoreRequest) -> None:
        token = (member, request.request_id)
        if self._table.park(token, request.keys):
            self._answer(member, gen, self._found(request))
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(0.0, request.timeout), self._give_up, token)
        self._parked[token] = (gen, request, timer)

    def _release(self) -> None:
        for token in self._table.released():
            gen, request, timer = self._parked.pop(token)
            timer.cancel()
            self._answer(token[0], gen, self._found(request))

    def _give_up(self, token: _Token) -> None:
        gen, request, _ = self._parked.pop(token)
        self._table.drop(token)
        reply = StoreReply(request_id=request.request_id, ok=False, error=TIMEOUT)
        self._answer(token[0], gen, reply)

    def _found(self, request: StoreRequest) -> StoreReply:
        value = self._table.get(request.keys[0]) if request.op == "get" else None
        return StoreReply(request_id=request.request_id, value=value or b"")

    def _do(self, request: StoreRequest) -> StoreReply:
        table, number, keys = self._table, request.request_id, request.keys
        match request.op:
            case "set":
                table.set(keys[0], request.value)
                return StoreReply(request_id=number)
            case "add":
                return StoreReply(request_id=number, number=table.add(keys[0], request.amount))
            case "check":
                return StoreReply(request_id=number, number=int(table.check(keys)))
            case "compare_set":
                value = table.compare_set(keys[0], request.expected, request.value)
                return StoreReply(request_id=number, value=value)
            case _:
                return StoreReply(request_id=number, number=int(table.delete(keys[0])))
