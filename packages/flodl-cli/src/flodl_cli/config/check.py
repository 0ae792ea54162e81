"""Checks a manifest and every manifest below it, and writes down what a manifest may hold."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from flodl_cli.config.discover import find_manifest
from flodl_cli.config.model import Manifest
from flodl_cli.config.project import problems_below
from flodl_cli.config.resolve import resolve
from flodl_cli.errors import ConfigError, ConfigErrors, FdlError, UsageError

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The manifests that were read and everything wrong with them."""

    files: tuple[str, ...]
    problems: tuple[ConfigError, ...]


def check(start: str) -> Report:
    """Check the project that the absolute path ``start`` belongs to.

    Raises:
        UsageError: It belongs to none.
    """
    try:
        file = find_manifest(start)
        if file is None:
            raise UsageError(
                f"no fdl.yml in {start} or above", hint="go to the project that is to be checked"
            )
        resolution = resolve(file)
    except ConfigErrors as error:
        return Report(files=(error.errors[0].file,), problems=error.errors)
    except ConfigError as error:
        return Report(files=(error.file,), problems=(error,))
    return Report(files=resolution.files, problems=tuple(problems_below(resolution.level)))


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
