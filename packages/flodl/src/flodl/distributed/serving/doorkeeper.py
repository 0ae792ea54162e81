"""Who may pass the control port: the run's token, and a pause for those who guess."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import IntEnum

_FAILURES = 10
_WINDOW_S = 60.0
_BARRED_S = 300.0
_PEERS = 4096


class Verdict(IntEnum):
    """Answer to a token, as the status of HTTP."""

    WELCOME = 200
    WRONG = 401
    BARRED = 429


class Doorkeeper:
    """Compares tokens in constant time; ten wrong ones in a minute bar an address for five.

    Args:
        token: The run's token.
        clock: Monotonic seconds; for tests.
    """

    def __init__(self, token: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._expected = token.encode()
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._barred: dict[str, float] = {}

    def judge(self, peer: str, authorization: str) -> Verdict:
        """Return whether an ``Authorization`` header opens the door; a wrong one is counted."""
        now = self._clock()
        if self._barred.get(peer, 0.0) > now:
            return Verdict.BARRED
        if self.knows(authorization):
            self._failures.pop(peer, None)
            return Verdict.WELCOME
        self._count(peer, now)
        return Verdict.WRONG

    def knows(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header is right, without counting."""
        kind, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "replace")
        # compared in any case, so that the time tells nothing
        is_same = hmac.compare_digest(given, self._expected)
        return is_same and kind.casefold() == "bearer"

    def _count(self, peer: str, now: float) -> None:
        failures = self._failures.setdefault(peer, deque(maxlen=_FAILURES))
        failures.append(now)
        self._failures.move_to_end(peer)
        if len(failures) == _FAILURES and now - failures[0] < _WINDOW_S:
            self._barred[peer] = now + _BARRED_S
            del self._failures[peer]
        while len(self._failures) > _PEERS:
            self._failures.popitem(last=False)
        self._barred = {p: until for p, until in self._barred.items() if until > now}
