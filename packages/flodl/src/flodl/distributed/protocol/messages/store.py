"""Operations of the store over which a generation's groups find each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StoreOp = Literal["set", "get", "add", "wait", "check", "compare_set", "delete"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreRequest:
    """Rank to controller: one operation of the store."""

    request_id: int
    op: StoreOp
    keys: tuple[str, ...]
    value: bytes = b""
    expected: bytes = b""
    """Of ``compare_set``."""
    amount: int = 0
    """Of ``add``."""
    timeout: float = 0.0
    """Seconds that ``get`` and ``wait`` may wait for their keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreReply:
    """Controller to rank: the answer to one operation."""

    request_id: int
    ok: bool = True
    value: bytes = b""
    number: int = 0
    """Of ``add`` the sum, of ``check`` and ``delete`` 1 for yes."""
    error: str = ""
