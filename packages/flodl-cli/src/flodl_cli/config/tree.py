"""The command tree: what a manifest and those below it offer, ready to run.

Standard library only: with a warm cache nothing else is needed to help or to run. Named tuples,
here and in what else the help path loads, because importing ``dataclasses`` takes as long as
starting Python.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from flodl_cli.errors import ConfigError


class Place(NamedTuple):
    """A line of a file, and the keys that lead to it."""

    file: str
    line: int | None
    key_path: str


class Missing(NamedTuple):
    """A key of the manifest that this version of fdl reads but cannot act on."""

    place: Place
    message: str
    hint: str


class RunCommand(NamedTuple):
    """A command that is a line for the shell, on this host or in the compose service ``docker``."""

    name: str
    description: str
    place: Place
    directory: str
    run: str
    append: str | None
    env: dict[str, str]
    missing: tuple[Missing, ...]
    docker: str | None = None


class Program(NamedTuple):
    """An ``entry`` with everything the manifests add before the user's own arguments.

    ``settings`` are the effective ``block.key`` values that ``flags`` were made from; ``docker``
    is the compose service that the entry runs in; ``layers`` are the files of its manifest.
    ``schema``, ``schema_from`` and ``probe`` say how its arguments are known.
    """

    entry: str
    directory: str
    flags: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, str]
    settings: dict[str, str]
    missing: tuple[Missing, ...]
    docker: str | None = None
    layers: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    schema_from: str | None = None
    probe: str = "auto"


class Preset(NamedTuple):
    """A command that runs its manifest's ``entry`` with settings of its own."""

    name: str
    description: str
    place: Place
    program: Program


class Level(NamedTuple):
    """What one manifest offers: its commands, and its ``entry`` if it has one.

    ``layers`` are all files it was merged from: parents, ``file`` itself, overlays.
    """

    file: str
    layers: tuple[str, ...]
    directory: str
    description: str
    preset_label: str
    program: Program | None
    commands: dict[str, Command]


class PathCommand(NamedTuple):
    """A command that leads to another manifest; ``problems`` say why it cannot be followed."""

    name: str
    description: str
    place: Place
    level: Level | None
    problems: tuple[ConfigError, ...] = ()


Command: TypeAlias = RunCommand | Preset | PathCommand


def to_json(level: Level) -> dict[str, Any]:
    """The tree as plain data; it must hold no problems."""
    plain: dict[str, Any] = _plain(level)
    return plain


def from_json(data: dict[str, Any]) -> Level:
    """The tree that ``to_json`` wrote.

    Raises:
        KeyError, TypeError: The data has another shape.
    """
    return Level(
        **{
            **data,
            "layers": tuple(data["layers"]),
            "program": data["program"] and _program(data["program"]),
            "commands": {name: _command(each) for name, each in data["commands"].items()},
        }
    )


def _command(data: dict[str, Any]) -> Command:
    place = Place(**data["place"])
    if "level" in data:
        level = from_json(data["level"])
        return PathCommand(**{**data, "place": place, "level": level, "problems": ()})
    if "program" in data:
        return Preset(**{**data, "place": place, "program": _program(data["program"])})
    return RunCommand(**{**data, "place": place, "missing": _missing(data["missing"])})


def _program(data: dict[str, Any]) -> Program:
    return Program(
        **{
            **data,
            "flags": tuple(data["flags"]),
            "args": tuple(data["args"]),
            "layers": tuple(data["layers"]),
            "missing": _missing(data["missing"]),
        }
    )


def _missing(data: list[dict[str, Any]]) -> tuple[Missing, ...]:
    return tuple(Missing(**{**each, "place": Place(**each["place"])}) for each in data)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
