"""Guides that coding assistants read, and where each of them looks for one."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from flodl_cli.errors import FdlError, UsageError

_BEGIN, _END = "<!-- >>> fdl skill: {name} >>> -->", "<!-- <<< fdl skill: {name} <<< -->"


class Tool(StrEnum):
    """Kinds of assistants, by the file they read."""

    CLAUDE = "claude"
    CURSOR = "cursor"
    GENERIC = "generic"


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """One guide: its name, what it is for, its text."""

    name: str
    description: str
    text: str


def skills(directory: Path) -> list[Skill]:
    """All guides; those of a checkout around ``directory`` win over the ones fdl came with."""
    root = files("flodl_cli") / "data" / "skills"
    found = {each.name: (each / "SKILL.md").read_text("utf-8")
             for each in root.iterdir() if each.is_dir()}  # fmt: skip
    for folder in (directory, *directory.parents):
        own = folder / "packages" / "flodl-cli" / "src" / "flodl_cli" / "data" / "skills"
        found |= {file.parent.name: file.read_text("utf-8") for file in own.glob("*/SKILL.md")}
    return [_skill(name, text) for name, text in sorted(found.items())]


def find_skill(name: str, directory: Path) -> Skill:
    """The guide called ``name``.

    Raises:
        UsageError: There is none.
    """
    known = {each.name: each for each in skills(directory)}
    if name not in known:
        raise UsageError(f"there is no skill {name!r}; there are: {', '.join(known)}")
    return known[name]


def detected(root: Path) -> list[Tool]:
    """The tools whose folders a project has."""
    return [tool for tool in (Tool.CLAUDE, Tool.CURSOR) if (root / f".{tool}").is_dir()]


def target(skill: Skill, tool: Tool, root: Path) -> Path:
    """The file in which ``tool`` reads ``skill``."""
    if tool is Tool.CLAUDE:
        return root / ".claude" / "skills" / skill.name / "SKILL.md"
    return root / (".cursorrules" if tool is Tool.CURSOR else "PORTING.md")


def install(skill: Skill, tool: Tool, root: Path) -> tuple[Path, bool]:
    """Write the guide where ``tool`` reads it; return the file, and whether it changed.

    In a file that belongs to the user only the block between our own two marks is written.

    Raises:
        FdlError: The file cannot be read or written.
    """
    file = target(skill, tool, root)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        after = skill.text if tool is Tool.CLAUDE else _with_block(before, skill)
        if after == before:
            return file, False
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(after, encoding="utf-8")
        temporary.replace(file)
    except (OSError, UnicodeDecodeError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise FdlError(f"{file} cannot be written: {error}") from error
    return file, True


def _with_block(text: str, skill: Skill) -> str:
    begin, end = _BEGIN.format(name=skill.name), _END.format(name=skill.name)
    block = f"{begin}\n{_body(skill.text)}{end}\n"
    if begin not in text:
        return text + ("\n" if text and not text.endswith("\n\n") else "") + block
    head, _, rest = text.partition(begin)
    if end not in rest:
        raise FdlError(f"the mark {begin!r} has no end", hint=f"put {end!r} below the block")
    return head + block + rest.partition(end)[2].removeprefix("\n")


def _skill(name: str, text: str) -> Skill:
    for line in text.splitlines():
        if line.startswith("description:"):
            return Skill(name=name, description=line.partition(":")[2].strip(), text=text)
    raise FdlError(f"the skill {name!r} has no description in its head")


def _body(text: str) -> str:
    """The guide without the head that only some tools read."""
    return text.split("---\n", 2)[2].lstrip("\n") if text.startswith("---\n") else text
