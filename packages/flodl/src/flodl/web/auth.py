"""Who may look: tokens, the session cookie, and the names this server answers to."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 (recognized here, bound nowhere)
_FAILURES = 10
_WINDOW_S = 60.0
_PEERS = 1024


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server bound to ``host``."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Auth:
    """Decides who may read.

    Args:
        token: What viewers must know; ``None`` lets everybody in.
        host: Address the server is bound to.
        allowed_hosts: More names it may be called by.
        clock: Monotonic seconds; for tests.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        host: str = "127.0.0.1",
        allowed_hosts: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._clock = clock
        self._names = {name.casefold() for name in (*LOOPBACK_NAMES, host, *allowed_hosts)}
        self._takes_addresses = host in _WILDCARDS
        if self._takes_addresses:
            self._names |= {socket.gethostname().casefold(), socket.getfqdn().casefold()}
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self.embed_origins: set[str] = set()
        """Origins of notebooks that may show the page in a frame."""

    @property
    def needs_token(self) -> bool:
        """Whether viewers must know a token."""
        return self._token is not None

    def answers_to(self, host_header: str) -> bool:
        """Return whether a ``Host`` header names this server, against DNS rebinding."""
        name = _host_name(host_header).casefold()
        if name in self._names:
            return True
        # a rebound name is never an address, so addresses are safe where any may be ours
        return self._takes_addresses and _is_address(name)

    def cookie_name(self, port: int) -> str:
        """Return the session cookie's name; cookies do not tell ports apart, so names must."""
        return f"flodl_session_{port}"

    def session(self) -> str:
        """Return the cookie value of a viewer who knew the token."""
        key = (self._token or "").encode()
        return hmac.new(key, b"flodl portal session", hashlib.sha256).hexdigest()

    def knows(self, token: str, peer: str) -> bool:
        """Return whether a token is right; a wrong one counts against the peer."""
        expected = (self._token or "").encode()
        if hmac.compare_digest(token.encode("utf-8", "replace"), expected):
            return True
        failures = self._failures.setdefault(peer, deque(maxlen=_FAILURES))
        failures.append(self._clock())
        self._failures.move_to_end(peer)
        while len(self._failures) > _PEERS:
            self._failures.popitem(last=False)
        return False

    def is_barred(self, peer: str) -> bool:
        """Return whether a peer has guessed wrong too often within the last minute."""
        failures = self._failures.get(peer)
        if failures is None or len(failures) < _FAILURES:
            return False
        return self._clock() - failures[0] < _WINDOW_S

    def has_session(self, cookie_header: str, port: int) -> bool:
        """Return whether a ``Cookie`` header carries a viewer's session."""
        value = cookie_value(cookie_header, self.cookie_name(port))
        return value is not None and hmac.compare_digest(value.encode(), self.session().encode())


def cookie_value(header: str, name: str) -> str | None:
    """Return one cookie of a ``Cookie`` header, ``None`` where it is not there."""
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _host_name(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
