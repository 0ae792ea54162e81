"""Makes the files of a new project from templates."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from flodl_cli import __version__
from flodl_cli.config.check import manifest_schema
from flodl_cli.config.discover import SCHEMA_FILE
from flodl_cli.errors import FdlError, UsageError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SLOT = re.compile(r"@@([A-Z]+)@@")
_DOCKERFILES = ("Dockerfile", "Dockerfile.cuda", "Dockerfile.rocm")


class Form(StrEnum):
    """How a project runs: on this machine, in containers that mount it, or in baked images."""

    NATIVE = "native"
    MOUNTED = "mounted"
    DOCKER = "docker"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaffold:
    """A new project: where it goes, and what it is like."""

    target: Path
    form: Form
    with_hf: bool = False

    @property
    def package(self) -> str:
        """Name of its Python package."""
        return self.target.name.lower().replace("-", "_")


def check_target(name: str, directory: Path) -> Path:
    """The folder for a project called ``name``.

    Raises:
        UsageError: The name cannot be one, or the folder holds something.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} is no name for a project",
            hint="letters, digits, - and _, with a letter first",
        )
    target = directory / name
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already", hint="choose another name, or empty it")
    return target


def contents(scaffold: Scaffold) -> dict[str, str]:
    """Every file of the project, by its path below the folder."""
    return dict(_contents(scaffold))


def write(scaffold: Scaffold) -> list[str]:
    """Write the project, whole or not at all, and return the paths of its files.

    Raises:
        FdlError: It cannot be written.
    """
    made = contents(scaffold)
    target = scaffold.target
    was_there = target.exists()
    try:
        for name, text in made.items():
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        (target / "fdl").chmod(0o755)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        if was_there:
            target.mkdir(exist_ok=True)
        raise FdlError(f"{target} cannot be written: {error.strerror}") from error
    return list(made)


def _contents(scaffold: Scaffold) -> Iterator[tuple[str, str]]:
    slots = _slots(scaffold)
    package = f"src/{scaffold.package}"
    for path, template in (
        ("pyproject.toml", "pyproject.toml"),
        (f"{package}/__init__.py", "package_init.py"),
        (f"{package}/args.py", "args.py"),
        (f"{package}/train.py", "train.py"),
        ("tests/test_smoke.py", "test_smoke.py"),
        ("fdl.yml.example", "fdl.yml"),
        ("fdl", "fdl"),
        (".gitignore", "gitignore"),
        (".env.example", "env.example"),
    ):
        yield path, _filled(template, slots)
    yield SCHEMA_FILE, manifest_schema()
    if scaffold.form is Form.NATIVE:
        return
    folder = "baked" if scaffold.form is Form.DOCKER else "docker"
    for name in _DOCKERFILES:
        yield name, _filled(f"{folder}/{name}", slots)
    yield "docker-compose.yml", _filled("docker-compose.yml", slots)


def _slots(scaffold: Scaffold) -> dict[str, str]:
    release = [int(part) for part in re.findall(r"\d+", __version__)[:2]]
    major, following = (
        (str(release[0]), str(release[0] + 1))
        if release[0]
        else (f"0.{release[1]}", f"0.{release[1] + 1}")
    )
    slots = {
        "NAME": scaffold.target.name,
        "PACKAGE": scaffold.package,
        "VERSION": __version__,
        "MAJOR": major,
        "NEXT": following,
        "HF": f'    "flodl-hf[full]>={major},<{following}",\n' if scaffold.with_hf else "",
        "DEV": "",
        "SCHEMA": SCHEMA_FILE,
        "GPU": "",
        "SHELLSAYS": f"Python with {scaffold.package} at hand",
        "SHELL": f'uv run python -i -c "import {scaffold.package}"',
        "CACHE": "",
        "VOLUMES": "",
    }
    if scaffold.form is not Form.NATIVE:
        slots["DEV"] = "    docker: dev\n"
        slots |= {"SHELLSAYS": "A shell in the container", "SHELL": "bash"}
        slots["GPU"] = _filled("gpu.yml", slots)
    if scaffold.form is Form.MOUNTED:
        slots["CACHE"] = ', "venv:/opt/venv", "uv-cache:/root/.cache/uv"'
        slots["VOLUMES"] = "volumes:\n  venv:\n  uv-cache:\n"
    return slots


def _filled(template: str, slots: dict[str, str]) -> str:
    text = (files(__package__) / "templates" / f"{template}.tmpl").read_text(encoding="utf-8")
    filled = _SLOT.sub(lambda match: slots[match[1]], text)
    return filled.rstrip("\n") + "\n"
