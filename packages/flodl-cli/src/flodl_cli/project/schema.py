"""Entry schemas: asked of the program, kept beside its manifest, and known to be stale."""
# ruff: noqa: PTH103, PTH105, PTH110, PTH116, PTH118, PTH119, PTH123
# On the help path, where importing pathlib would take a fifth of the time.

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flodl_cli.args.schema import Schema, schema_from_json
from flodl_cli.config.tree import Level, PathCommand, Program
from flodl_cli.errors import FdlError, LaunchError, SchemaError
from flodl_cli.names import CACHE_FOLDER

PROBE_LIMIT_S = 10.0
_FOLDER = "schema-cache"
SCHEMA_FLAG = "--fdl-schema"
"""How a program is asked."""

_SKIPPED = {"__pycache__", "runs", "data", "node_modules"}
_MOST_FILES = 2000


class Known(NamedTuple):
    """What is known of a program's arguments; ``status`` is fresh, stale, inline or none."""

    schema: Schema | None
    status: str


def known_schema(program: Program) -> Known:
    """The schema that was kept for ``program``, else the one in its manifest; nothing is run."""
    kept = _kept(program)
    if kept is not None:
        fresh = kept["fingerprint"] == _fingerprint(program)
        return Known(schema_from_json(kept["schema"]), "fresh" if fresh else "stale")
    if program.schema is not None:
        return Known(schema_from_json(program.schema), "inline")
    return Known(None, "none")


def wants_probe(program: Program, known: Known) -> bool:
    """Whether the program is to be asked before it is run.

    ``always`` asks whenever what is kept is not fresh. Otherwise only a program that has answered
    before is asked again: one that does not know the question would simply start its work.
    """
    if program.probe == "always":
        return known.status != "fresh"
    return program.probe != "never" and known.status == "stale"


def refresh_schema(
    program: Program, argv: Sequence[str], directory: str, env: Mapping[str, str]
) -> Schema:
    """Ask the program and keep what it says; ``argv`` asks it for its schema.

    Raises:
        FdlError: It does not answer with a schema.
    """
    answer = _asked(program, argv, directory, env)
    try:
        schema = schema_from_json(json.loads(answer))
    except ValueError as error:
        raise FdlError(
            f"{program.entry} {SCHEMA_FLAG}: what it printed is no JSON: {answer[:60]!r}",
            hint="see flodl_cli.args for a program that answers",
        ) from error
    except SchemaError as error:
        raise FdlError(f"{program.entry} {SCHEMA_FLAG}: {error.message}") from error
    _keep(program, json.loads(answer))
    return schema


def clear_schema(program: Program) -> bool:
    """Forget what was kept; whether there was anything."""
    try:
        os.unlink(cache_file(program))  # noqa: PTH108 - as above
    except OSError:
        return False
    return True


def programs_below(level: Level, trail: tuple[str, ...] = ()) -> Iterator[tuple[str, Program]]:
    """Every entry of the project with the words that lead to it; the root's is called ``.``."""
    if level.program is not None:
        yield " ".join(trail) or ".", level.program
    for name, command in level.commands.items():
        if isinstance(command, PathCommand) and command.level is not None:
            yield from programs_below(command.level, (*trail, name))


def cache_file(program: Program) -> str:
    """Where the schema of a program is kept."""
    name = os.path.basename(program.directory) or "root"
    return os.path.join(program.directory, CACHE_FOLDER, _FOLDER, f"{name}.json")


def _asked(program: Program, argv: Sequence[str], directory: str, env: Mapping[str, str]) -> str:
    from flodl_cli.host.process import ask

    if program.schema_from is not None:
        argv, directory = _import_line(program), program.directory
    try:
        answer = ask(argv, directory=directory, env=env, limit_s=PROBE_LIMIT_S)
    except LaunchError as error:
        raise FdlError(f"{program.entry} {SCHEMA_FLAG}: {error.message}") from error
    if answer.code != 0:
        reason = answer.err.strip() or "it gave no reason"
        raise FdlError(f"{program.entry} {SCHEMA_FLAG} ended with {answer.code}: {reason}")
    return answer.out


def _import_line(program: Program) -> list[str]:
    """Python that prints the schema of a class, from the environment of the project."""
    module, _, name = (program.schema_from or "").partition(":")
    code = (
        "import json, sys; sys.path.insert(0, '.')\n"
        f"from {module} import {name}\n"
        "from flodl_cli.args import schema_of\n"
        "from flodl_cli.args.schema import schema_to_json\n"
        f"print(json.dumps(schema_to_json(schema_of({name}))))"
    )
    own = os.path.join(program.directory, ".venv", "bin", "python")
    return [own if os.path.exists(own) else "python3", "-c", code]


def _kept(program: Program) -> dict[str, Any] | None:
    try:
        with open(cache_file(program), encoding="utf-8") as stream:
            kept: dict[str, Any] = json.load(stream)
        schema_from_json(kept["schema"])
        return kept if "fingerprint" in kept else None
    except (OSError, ValueError, KeyError, TypeError, SchemaError):
        return None


def _keep(program: Program, data: Mapping[str, Any]) -> None:
    """Write it down; a folder that cannot be written only costs time."""
    target = cache_file(program)
    temporary = f"{target}.{os.getpid()}.tmp"
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH120 - as above
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump({"fingerprint": _fingerprint(program), "schema": data}, stream)
        os.replace(temporary, target)


def _fingerprint(program: Program) -> str:
    """Changes with the manifests and with every source file beside them."""
    from hashlib import blake2b  # it loads OpenSSL, and most calls get by without

    files = list(program.layers)
    sources = list(_sources(program.directory))
    if len(sources) <= _MOST_FILES:
        files += sources
    digest = blake2b(digest_size=16)
    for file in sorted(files):
        with contextlib.suppress(OSError):
            status = os.stat(file)
            digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _sources(directory: str) -> Iterator[str]:
    seen = 0
    for folder, folders, names in os.walk(directory):
        folders[:] = [each for each in folders if each not in _SKIPPED and each[0] != "."]
        for name in names:
            if name.endswith(".py") or name == "pyproject.toml":
                seen += 1
                yield os.path.join(folder, name)
        if seen > _MOST_FILES:
            return
