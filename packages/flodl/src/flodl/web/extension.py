"""What others answer on the portal's port: the routes of whoever directs the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """Routes beside the portal's, which check for themselves who may call them.

    Requests to ``paths`` pass the portal's gate untouched: no viewer's token, no list of names,
    any method, no budget, and websockets where they are on. Everything else stays the portal's.
    """

    routers: Sequence[APIRouter] = ()
    paths: frozenset[str] = frozenset()
    """Paths of the routes, as they are requested."""
    is_reader: Callable[[str], bool] | None = None
    """Told an ``Authorization`` header, returns whether it opens the portal as well."""
    websocket_bytes: int = 0
    """Largest message of a websocket; 0 for no websockets."""
    certificate: Path | None = None
    """Serve over TLS with this certificate."""
    certificate_key: Path | None = None


NO_EXTENSION = Extension()
