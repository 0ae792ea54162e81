"""Where the portal listens, who may see it, and what is said about it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from flodl.core.errors import ConfigError
from flodl.web.auth import is_loopback, new_token
from flodl_sys import names

DEFAULT_PORT = 3000


@dataclass(frozen=True, kw_only=True, slots=True)
class ServePlace:
    """Where the portal is, and who may see it.

    Raises:
        ConfigError: The port is out of range.
    """

    port: int = DEFAULT_PORT
    """0 takes any free port."""
    host: str = "127.0.0.1"
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    isolate: bool = False
    """Whether the server is a process of its own."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"serve(port={self.port}): must lie in [0, 65535]")

    @property
    def is_remote(self) -> bool:
        """Whether others than this machine reach it."""
        return not is_loopback(self.host)


def serve_place(
    port: int | None = None,
    *,
    host: str | None = None,
    token: str | None = None,
    allowed_hosts: Sequence[str] = (),
    isolate: bool = False,
) -> ServePlace:
    """Return where to serve: arguments first, then variables, then loopback.

    A portal that others reach has a token, made up where none is given.

    Raises:
        ConfigError: The port is out of range.
    """
    chosen = host or names.DASHBOARD_BIND.get() or "127.0.0.1"
    known = token or names.DASHBOARD_TOKEN.get()
    return ServePlace(
        port=DEFAULT_PORT if port is None else port,
        host=chosen,
        token=known or (None if is_loopback(chosen) else new_token()),
        allowed_hosts=tuple(allowed_hosts),
        isolate=isolate,
    )


def shown_host(place: ServePlace) -> str:
    """Return the name by which viewers reach a portal."""
    if not place.is_remote:
        return "localhost"
    is_wildcard = place.host in {"0.0.0.0", "::"}  # noqa: S104 (recognized here, not bound)
    return socket.gethostname() if is_wildcard else place.host


def announcement(place: ServePlace, port: int) -> list[str]:
    """Return what is printed when serving begins; the token stands in a fragment, once."""
    host = shown_host(place)
    address = f"http://{host}:{port}/"
    if not place.is_remote:
        return [f"  dashboard: {address}" + _fragment(place)]
    return [
        f"  dashboard from elsewhere, safely: ssh -L {port}:localhost:{port} "
        f"{getpass.getuser()}@{host}",
        f"  dashboard: {address}{_fragment(place)}",
    ]


def _fragment(place: ServePlace) -> str:
    return "" if place.token is None else f"#token={place.token}"
