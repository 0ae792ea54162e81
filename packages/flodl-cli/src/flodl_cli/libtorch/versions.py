"""Which version of torch a project wants, from its lock files and its environment."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl_cli.libtorch.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version, and what asks for it."""

    version: str
    source: str


def wanted_version(directory: Path, catalog: Catalog) -> Wanted:
    """The version for the project at ``directory`` or above, else the catalog's default."""
    for folder in (directory, *directory.parents):
        locked = _locked(folder / "uv.lock", "torch")
        if locked is not None:
            return Wanted(locked.partition("+")[0], str(folder / "uv.lock"))
        crate = tch_version(folder)
        needed = catalog.torch_for_tch(crate) if crate else None
        if needed is not None:
            return Wanted(needed, f"{folder / 'Cargo.lock'} (torch-sys {crate})")
    return Wanted(catalog.default_version, "the catalog's default")


def tch_version(folder: Path) -> str | None:
    """The version of the crate ``torch-sys`` that ``Cargo.lock`` in ``folder`` holds."""
    return _locked(folder / "Cargo.lock", "torch-sys")


def tch_above(directory: Path) -> str | None:
    """The version of ``torch-sys`` in the nearest ``Cargo.lock`` that has it."""
    found = (tch_version(folder) for folder in (directory, *directory.parents))
    return next((version for version in found if version is not None), None)


def _locked(file: Path, name: str) -> str | None:
    return next((str(each["version"]) for each in _packages(file)
                 if each.get("name") == name and "version" in each), None)  # fmt: skip


def _packages(file: Path) -> Iterator[dict[str, Any]]:
    """The packages of a lock file of uv or cargo; none when it is not there or not readable."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    packages = data.get("package")
    yield from (each for each in packages or () if isinstance(each, dict))
