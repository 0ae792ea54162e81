"""Which flodl a project has, and ``pyproject.toml`` with one more dependency."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from flodl_cli.errors import FdlError, UsageError

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(.*)")
_EXACT = re.compile(r"={2,3}\s*([^\s,;*]+)\s*(?:;.*)?")


def flodl_version(root: Path) -> str:
    """The exact version of flodl that the project at ``root`` uses.

    It comes from ``uv.lock``, else from its environment, else from an exact pin.

    Raises:
        UsageError: It depends on no flodl, or none of the three tells a published version.
    """
    data = _parsed(root / "pyproject.toml")
    requirement = _requirement(data, "flodl")
    if requirement is None:
        raise UsageError(
            f"{root / 'pyproject.toml'} does not depend on flodl",
            hint="make a project with `fdl init NAME`, or `uv add flodl` here",
        )
    source = data.get("tool", {}).get("uv", {}).get("sources", {}).get("flodl")
    if "@" in requirement or (isinstance(source, dict) and {"git", "path", "url"} & set(source)):
        raise UsageError(
            f"this project takes flodl from {source or requirement.strip()}, which is no published "
            "version that flodl-hf could be pinned to",
            hint="add flodl-hf from the same place yourself",
        )
    version = _locked(root) or _installed(root) or _pinned(requirement)
    if version is None:
        raise UsageError(
            f"which flodl this project uses is not known: no uv.lock, no .venv in {root}, and "
            f"{requirement.strip() or 'any version'!r} is no exact version",
            hint="uv sync, then again",
        )
    return version


def depends_on(root: Path, name: str) -> bool:
    """Whether the project at ``root`` names ``name`` among its dependencies."""
    return _requirement(_parsed(root / "pyproject.toml"), name) is not None


def with_dependency(text: str, requirement: str) -> str:
    """``pyproject.toml`` with ``requirement`` added to the project's dependencies.

    Raises:
        FdlError: The file has no list of dependencies that can be added to.
    """
    try:
        document = tomlkit.parse(text)
        dependencies: Any = document["project"]["dependencies"]
        dependencies.append(requirement)
    except (TOMLKitError, KeyError, TypeError, AttributeError) as error:
        raise FdlError(
            f"pyproject.toml cannot be added to: {error}",
            hint=f"add {requirement} to its project.dependencies yourself",
            exit_code=2,
        ) from error
    return tomlkit.dumps(document)


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no {file}", hint="make a project with `fdl init NAME`"
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}", hint="repair it first") from error


def _requirement(data: Mapping[str, Any], name: str) -> str | None:
    """What follows the name in the project's requirement of it, or ``None``."""
    listed: Iterable[Any] = data.get("project", {}).get("dependencies", [])
    for each in listed:
        match = _REQUIREMENT.match(str(each))
        if match is not None and _same(match[1], name):
            return match[2]
    return None


def _locked(root: Path) -> str | None:
    lock = root / "uv.lock"
    if not lock.is_file():
        return None
    packages = _parsed(lock).get("package", [])
    return next((str(each["version"]) for each in packages if each.get("name") == "flodl"), None)


def _installed(root: Path) -> str | None:
    pattern = "lib/python*/site-packages/flodl-*.dist-info"
    found = sorted((root / ".venv").glob(pattern))
    return found[0].name.removeprefix("flodl-").removesuffix(".dist-info") if found else None


def _pinned(requirement: str) -> str | None:
    match = _EXACT.fullmatch(requirement.strip())
    return match[1] if match is not None else None


def _same(name: str, other: str) -> bool:
    return re.sub(r"[-_.]+", "-", name).lower() == re.sub(r"[-_.]+", "-", other).lower()
