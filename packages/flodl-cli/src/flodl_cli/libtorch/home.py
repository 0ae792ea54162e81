"""Which ``libtorch`` folder a call is about: the project's, or the user's own."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.names import MANIFEST_FILES
from flodl_sys import names as variables

ACTIVE_FILE = ".active"
_TEMPLATES = (".example", ".dist")
_PROJECT_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds ``libtorch/``; ``kind`` is ``project``, ``global`` or ``given``."""

    kind: str
    path: Path

    @property
    def libtorch(self) -> Path:
        """The folder of the variants."""
        return self.path / "libtorch"

    def __str__(self) -> str:
        return f"{self.kind} ({self.path})"


def find_home(
    start: Path,
    environ: Mapping[str, str],
    *,
    root: Path | None = None,
    is_global: bool = False,
) -> Home:
    """The home that ``start`` belongs to: ``root``, the nearest project, or the user's own."""
    if root is not None:
        return Home("given", root.absolute())
    if not is_global:
        for folder in (start, *start.parents):
            if is_project(folder):
                return Home("project", folder)
    return Home("global", global_home(environ))


def global_home(environ: Mapping[str, str]) -> Path:
    """``$FLODL_HOME``, or ``~/.flodl``."""
    named = environ.get(variables.HOME.name)
    return Path(named).absolute() if named else Path.home() / ".flodl"


def is_project(folder: Path) -> bool:
    """Whether ``folder`` has an active libtorch, a manifest, or depends on flodl."""
    if (folder / "libtorch" / ACTIVE_FILE).is_file():
        return True
    manifests = [name + end for name in MANIFEST_FILES for end in ("", *_TEMPLATES)]
    if any((folder / name).is_file() for name in manifests):
        return True
    return "flodl" in _dependencies(folder / "pyproject.toml")


def _dependencies(pyproject: Path) -> set[str]:
    try:
        data = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    project = data.get("project")
    listed = project.get("dependencies") if isinstance(project, dict) else None
    found = (_PROJECT_NAME.match(each) for each in listed or () if isinstance(each, str))
    return {match[0].lower().replace("_", "-") for match in found if match}
