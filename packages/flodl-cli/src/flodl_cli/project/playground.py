"""A folder to try flodl-hf in: a small project of its own, and a command that leads to it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.names import MANIFEST_FILES

FOLDER = "flodl-hf"
_DESCRIPTION = "Try Hugging Face models as flodl graphs"
_COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")


def manifests(root: Path) -> list[Path]:
    """The manifest of a project and its example, those that are there.

    Raises:
        UsageError: There is neither.
    """
    names = [name + ending for name in MANIFEST_FILES[:2] for ending in ("", ".example", ".dist")]
    found = [root / name for name in names if (root / name).is_file()]
    if not found:
        raise UsageError(
            f"{root} has no {MANIFEST_FILES[0]} that could lead to the playground",
            hint="make a project with `fdl init NAME`, or write one",
        )
    return found


def contents(root: Path, version: str) -> dict[str, str]:
    """Every file of the playground, by its path below the folder."""
    has_compose = any((root / name).is_file() for name in _COMPOSE_FILES)
    slots = {"VERSION": version, "DOCKER": "    docker: dev\n" if has_compose else ""}
    made = {
        name: _filled(name, slots)
        for name in ("pyproject.toml", "classify.py", "bert.py", "sentiment.py", "README.md",
                     "test_playground.py")
    }  # fmt: skip
    manifest = _filled("fdl.yml", slots)
    return {**made, "fdl.yml": manifest, "fdl.yml.example": manifest}


def write(root: Path, version: str) -> list[str]:
    """Make the playground and name it in the project's manifests, all of it or nothing.

    Raises:
        UsageError: The folder is there already, or no manifest can name it.
        FdlError: It cannot be written.
    """
    target = root / FOLDER
    if target.exists():
        raise UsageError(f"{target} exists already; nothing was changed", hint="remove it first")
    changed = {file: _with_command(file) for file in manifests(root)}
    before = {file: file.read_text(encoding="utf-8") for file in changed}
    try:
        target.mkdir()
        for name, text in contents(root, version).items():
            (target / name).write_text(text, encoding="utf-8")
        for file, text in changed.items():
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        _restore(before)
        raise FdlError(f"{error.filename} cannot be written: {error.strerror}") from error
    return [f"{FOLDER}/{name}" for name in contents(root, version)]


def _with_command(file: Path) -> str:
    """The manifest with the command ``flodl-hf``, its comments kept."""
    from io import StringIO

    text = file.read_text(encoding="utf-8")
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        document = yaml.load(text)
        commands = document.setdefault("commands", {})
        if FOLDER in commands:
            return text
        commands[FOLDER] = {"description": _DESCRIPTION, "path": FOLDER}
    except (YAMLError, AttributeError, TypeError) as error:
        raise UsageError(f"{file} cannot be added to: {error}", hint="repair it first") from error
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _restore(before: Mapping[Path, str]) -> None:
    for file, text in before.items():
        file.write_text(text, encoding="utf-8")


def _filled(name: str, slots: Mapping[str, str]) -> str:
    text = (files(__package__) / "templates" / "playground" / f"{name}.tmpl").read_text("utf-8")
    for slot, value in slots.items():
        text = text.replace(f"@@{slot}@@", value)
    return text
