"""Checks a manifest and every manifest below it, and writes down what a manifest may hold."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.config.discover import find_manifest, overlay_names
from flodl_cli.config.model import Manifest
from flodl_cli.config.project import problems_below
from flodl_cli.config.resolve import resolve
from flodl_cli.errors import ConfigError, ConfigErrors, FdlError, UsageError

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The files that were read, everything wrong with them, and what else there is to say."""

    files: tuple[str, ...]
    problems: tuple[ConfigError, ...]
    notes: tuple[str, ...] = ()


def check(start: str, overlay: str | None = None, *, all_envs: bool = False) -> Report:
    """Check the project that the absolute path ``start`` belongs to.

    With ``all_envs`` it is checked without an overlay, then with each one beside its manifest.

    Raises:
        UsageError: It belongs to none.
    """
    try:
        file = find_manifest(start)
    except ConfigError as error:
        return Report(files=(error.file,), problems=(error,))
    if file is None:
        raise UsageError(
            f"no fdl.yml in {start} or above", hint="go to the project that is to be checked"
        )
    overlays = [None, *overlay_names(file)] if all_envs else [overlay]
    reports = [_check(file, each) for each in overlays]
    # The same fault shows with every overlay: say it once.
    problems = {_identity(each): each for report in reports for each in report.problems}
    return Report(
        files=tuple(dict.fromkeys(path for report in reports for path in report.files)),
        problems=tuple(problems.values()),
        notes=reports[0].notes,
    )


def _check(file: str, overlay: str | None) -> Report:
    try:
        resolution = resolve(file, overlay)
    except ConfigErrors as error:
        return Report(files=(error.errors[0].file,), problems=error.errors)
    except ConfigError as error:
        return Report(files=(error.file,), problems=(error,))
    both = [name for name in overlay_names(file) if name in resolution.level.commands]
    return Report(
        files=resolution.files,
        problems=tuple(problems_below(resolution.level)),
        notes=tuple(
            f"{name!r} is a command and an overlay: `fdl {name}` runs the command, "
            f"`fdl @{name} COMMAND` uses the overlay"
            for name in both
        ),
    )


def _identity(problem: ConfigError) -> tuple[object, ...]:
    return problem.file, problem.line, problem.key_path, problem.message


def manifest_schema() -> str:
    """The JSON Schema of a manifest, for editors."""
    schema = {"$schema": _DIALECT, **Manifest.model_json_schema(by_alias=True)}
    return json.dumps(schema, indent=2) + "\n"


def write_text(target: Path, text: str) -> None:
    """Write ``text`` to ``target``, whole or not at all.

    Raises:
        FdlError: It cannot be written.
    """
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise FdlError(
            f"{target} cannot be written: {error.strerror}",
            hint="name a file in a folder that exists and is yours",
        ) from error
