"""Objects for processes that cannot run the program again, pickled one by one."""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from flodl.core.errors import LaunchError


def write_payload(file: Path, objects: Mapping[str, object]) -> None:
    """Write objects by name; only this user can read the file.

    Raises:
        LaunchError: An object cannot be pickled; the message names it.
    """
    pickler = _cloudpickle()
    dumps: Callable[[object], bytes] = pickle.dumps if pickler is None else pickler.dumps
    parts = {name: _pickled(name, value, dumps, pickler) for name, value in objects.items()}
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        pickle.dump(parts, stream)


def read_payload(file: Path) -> dict[str, Any]:
    """Return the objects of a file that this program has written."""
    parts: dict[str, bytes] = pickle.loads(file.read_bytes())  # noqa: S301 (our own file, mode 0600)
    return {name: pickle.loads(data) for name, data in parts.items()}  # noqa: S301


def _pickled(
    name: str, value: object, dumps: Callable[[object], bytes], pickler: ModuleType | None
) -> bytes:
    try:
        return dumps(value)
    # what a pickler raises depends on the object: each class may raise its own
    except Exception as error:
        hint = "define it in a module, or build what cannot be pickled inside it"
        if pickler is None:
            hint += "; cloudpickle, once installed, takes lambdas and functions of a notebook"
        raise LaunchError(
            f"launch='spawn': {name} cannot be pickled: {type(error).__name__}: {error}", hint=hint
        ) from error


def _cloudpickle() -> ModuleType | None:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return None
