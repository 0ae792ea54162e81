"""What ranks raised, as exceptions of the launcher."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from flodl.core.errors import FlodlError, NonFiniteError, RankError


def rebuilt(errors: Sequence[Mapping[str, Any]]) -> FlodlError:
    """Return the exception to raise for what ranks told; its cause is the original, if it can be.

    Args:
        errors: Of each kind the first, as the controller's last word holds it.
    """
    first = errors[0]
    if first.get("kind") == "nonfinite":
        return NonFiniteError(str(first["message"]))
    rank, host = int(first.get("number", 0)), str(first.get("host", ""))
    name = str(first["type_name"]).rpartition(":")[2]
    place = f"rank {rank} on {host}" if host else f"rank {rank}"
    count = int(first.get("count", 1))
    others = f" (and {count - 1} other ranks the same)" if count > 1 else ""
    error = RankError(
        f"{place} raised {name}: {first['message']}{others}",
        traceback_text=str(first["traceback"]),
        rank=rank,
        host=host,
        epoch=int(first.get("epoch", 0)),
        step=int(first.get("step", 0)),
        batch_ranges=tuple((int(a), int(b)) for a, b in first.get("ranges", ())),
        count=count,
    )
    error.__cause__ = _original(first)
    return error


def _original(told: Mapping[str, Any]) -> BaseException | None:
    """Return the exception as it was, where its class can be imported and takes its arguments."""
    module_name, _, name = str(told["type_name"]).partition(":")
    try:
        module = builtins if module_name == "builtins" else importlib.import_module(module_name)
        kind: Any = module
        for part in name.split("."):
            kind = getattr(kind, part)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            return None
        return kind(*told.get("args", ()))
    except Exception:  # noqa: BLE001 - whatever the class of a user does: the text holds all of it
        return None
