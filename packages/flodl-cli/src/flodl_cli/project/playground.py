"""A folder to try flodl-hf in: a small project of its own, and a command that leads to it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from flodl_cli.config.check import write_text
from flodl_cli.config.discover import SCHEMA_FILE
from flodl_cli.errors import FdlError, UsageError
from flodl_cli.names import MANIFEST_FILES

FOLDER = "flodl-hf"
_DESCRIPTION = "Try Hugging Face models as flodl graphs"
_NEVER_FOLD = 1 << 20
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
    has_schema = (root / SCHEMA_FILE).is_file()
    slots = {
        "VERSION": version,
        "DOCKER": "    docker: dev\n" if has_compose else "",
        "SCHEMA": f"# yaml-language-server: $schema=../{SCHEMA_FILE}\n" if has_schema else "",
    }
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
            write_text(file, text)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        _restore(before)
        raise FdlError(f"{error.filename} cannot be written: {error.strerror}") from error
    return [f"{FOLDER}/{name}" for name in contents(root, version)]


def _with_command(file: Path) -> str:
    """The manifest with the command ``flodl-hf``, and everything else in it as it was."""
    text = file.read_text(encoding="utf-8")
    try:
        document = YAML(pure=True).load(text)
        document = {} if document is None else document
        commands = document.get("commands")
        if commands is not None and FOLDER in commands:
            return text
        lines = text.splitlines(keepends=True)
        line, column = _end_of_commands(document, commands, lines)
    except (YAMLError, AttributeError, TypeError) as error:
        raise UsageError(f"{file} cannot be added to: {error}", hint="repair it first") from error
    if line is None:
        return _dumped(text)
    margin = " " * column
    added = [] if "commands" in document else ["commands:\n"]
    added += [f"{margin}{FOLDER}:\n"]
    added += [f"{margin}  {each}\n" for each in (f"description: {_DESCRIPTION}", f"path: {FOLDER}")]
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    return "".join((*lines[:line], *added, *lines[line:]))


def _end_of_commands(document: Any, commands: Any, lines: Sequence[str]) -> tuple[int | None, int]:
    """Before which line one more command goes, and how far in; ``None`` for a map in braces."""
    if isinstance(document, CommentedMap) and (not document or document.fa.flow_style()):
        return None, 2
    if "commands" not in document:
        return len(lines), 2
    start = document.lc.data["commands"][0] + 1
    if commands is None:
        return (None if "null" in lines[start - 1] else start), 2
    if not commands or commands.fa.flow_style():
        return None, 2
    column = min(position[1] for position in commands.lc.data.values())
    end = start
    for number, line in enumerate(lines[start:], start):
        if line.strip() and len(line) - len(line.lstrip()) < column and line.lstrip()[0] != "#":
            break
        if line.strip() and len(line) - len(line.lstrip()) >= column:
            end = number + 1
    return end, column


def _dumped(text: str) -> str:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _NEVER_FOLD
    document = yaml.load(text)
    document["commands"] = document.get("commands") or {}
    document["commands"][FOLDER] = {"description": _DESCRIPTION, "path": FOLDER}
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
