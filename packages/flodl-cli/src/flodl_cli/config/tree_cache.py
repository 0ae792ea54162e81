"""Keeps the command tree between calls, so that help and dispatch need neither YAML nor models.

A cache that is missing, stale, damaged or not writable only costs time: nothing here raises.
"""
# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH116, PTH118, PTH120, PTH123
# On the help path, where importing pathlib would take a fifth of the time.

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any

from flodl_cli.config.tree import Level, from_json, to_json
from flodl_cli.names import CACHE_FOLDER

_FORMAT = 4


def load_tree(file: str, overlay: str | None, version: str) -> Level | None:
    """The kept tree of the manifest ``file``, if the files it was made from are as they were."""
    try:
        with open(_cache_file(file, overlay), encoding="utf-8") as stream:
            kept = json.load(stream)
        if kept["format"] != _FORMAT or kept["version"] != version:
            return None
        layers: list[list[Any]] = kept["layers"]
        if layers[0][0] != file or any(_fingerprint(layer[0]) != layer for layer in layers):
            return None
        if any(os.path.exists(path) for path in kept["absent"]):
            return None
        return from_json(kept["tree"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def store_tree(
    level: Level, overlay: str | None, files: Sequence[str], absent: Sequence[str], version: str
) -> None:
    """Keep a tree that has no problems, for as long as its files do not change."""
    target = _cache_file(level.file, overlay)
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        kept = {
            "format": _FORMAT,
            "version": version,
            "layers": [_fingerprint(file) for file in dict.fromkeys(files)],
            "absent": list(absent),
            "tree": to_json(level),
        }
        _make_folder(os.path.dirname(target))
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(kept, stream)
        os.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _cache_file(file: str, overlay: str | None) -> str:
    name = "tree.json" if overlay is None else f"tree.{overlay}.json"
    return os.path.join(os.path.dirname(file), CACHE_FOLDER, "cache", name)


def _fingerprint(file: str) -> list[Any]:
    status = os.stat(file)
    with open(file, encoding="utf-8", errors="surrogateescape", newline="") as stream:
        # The text itself, which is small: hashlib would load OpenSSL on every help.
        return [file, status.st_size, status.st_mtime_ns, stream.read()]


def _make_folder(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    ignore = os.path.join(os.path.dirname(folder), ".gitignore")
    if not os.path.exists(ignore):
        with open(ignore, "w", encoding="utf-8") as stream:
            stream.write("*\n")  # what lies in the cache folder is nobody's to commit
