"""Edits ``pyproject.toml`` so that uv takes torch from the wheels of one backend."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from flodl_cli.errors import FdlError

_WHEELS = "https://download.pytorch.org/whl"
_PREFIX = "pytorch-"
_PACKAGES = ("torch", "torchvision")


def with_backend(text: str, backend: str) -> str:
    """The file with an index for ``backend`` and torch taken from it; all else as it was.

    Only what an earlier call of this function wrote is replaced.

    Raises:
        FdlError: The file is no TOML, or takes torch from somewhere else already.
    """
    try:
        document = tomlkit.parse(text)
        uv = _table(_table(document, "tool"), "uv")
        sources = _table(uv, "sources")
        for package in _PACKAGES:
            _refuse_foreign(package, sources.get(package))
        name = f"{_PREFIX}{backend}"
        _set_index(uv, name, f"{_WHEELS}/{backend}")
        for package in _PACKAGES:
            source = tomlkit.inline_table()
            source["index"] = name
            sources[package] = source
    except (TOMLKitError, TypeError, AttributeError) as error:
        raise FdlError(
            f"pyproject.toml cannot be changed: {error}", hint="repair it first", exit_code=2
        ) from error
    changed: str = tomlkit.dumps(document)
    return changed.rstrip("\n") + "\n"


def depends_on_torch(text: str) -> bool:
    """Whether the project itself names torch: uv heeds sources for nothing else."""
    project = tomlkit.parse(text).unwrap().get("project", {})
    names = (re.match(r"[\w.-]+", str(each)) for each in project.get("dependencies", []))
    return any(match is not None and match[0].lower() == "torch" for match in names)


def _set_index(uv: MutableMapping[str, Any], name: str, url: str) -> None:
    kept = [each for each in uv.get("index", []) if not _is_ours(each)]
    indexes: AoT = tomlkit.aot()
    for each in kept:
        indexes.append(each)
    index = tomlkit.table()
    index.update({"name": name, "url": url, "explicit": True})
    index.add(tomlkit.nl())  # the next table would start right below
    indexes.append(index)
    uv["index"] = indexes


def _is_ours(index: MutableMapping[str, Any]) -> bool:
    ours = str(index.get("name", "")).startswith(_PREFIX)
    return ours and str(index.get("url", "")).startswith(_WHEELS)


def _refuse_foreign(package: str, source: Any) -> None:
    if source is None:
        return
    index = source.get("index") if isinstance(source, MutableMapping) else None
    if index is None or not str(index).startswith(_PREFIX):
        raise FdlError(
            f"tool.uv.sources.{package} is set already: {source}",
            hint="remove it, so that fdl can write its own",
            exit_code=2,
        )


def _table(parent: MutableMapping[str, Any], name: str) -> MutableMapping[str, Any]:
    if name not in parent:
        parent[name] = tomlkit.table()
    table = parent[name]
    if not isinstance(table, MutableMapping):
        raise TypeError(f"{name} is no table")
    return table
