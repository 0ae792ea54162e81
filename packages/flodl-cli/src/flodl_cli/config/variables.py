"""Single settings from the environment: ``FDL_TRAINING__EPOCHS=3`` is ``training.epochs: 3``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl_cli.config.presets import BLOCKS
from flodl_cli.errors import ConfigErrors, UsageError

_PREFIXES = {f"FDL_{block.upper()}__": block for block in BLOCKS}


def has_settings(environ: Mapping[str, str]) -> bool:
    """Whether any variable holds a setting; light enough for the help path."""
    return any(name.startswith(tuple(_PREFIXES)) for name in environ)


def settings_of(environ: Mapping[str, str]) -> dict[tuple[str, ...], tuple[str, Any]]:
    """Each setting of the environment: its key path, and the variable and value it has.

    Raises:
        UsageError: A variable names no known key, or its value does not fit.
    """
    found: dict[tuple[str, ...], tuple[str, Any]] = {}
    for name, text in environ.items():
        prefix = next((each for each in _PREFIXES if name.startswith(each)), None)
        if prefix is None:
            continue
        block = _PREFIXES[prefix]
        keys = tuple(part.lower() for part in name.removeprefix(prefix).split("__"))
        if block == "options":
            keys = tuple(key.replace("_", "-") for key in keys)
        path = (block, *keys)
        found[path] = (name, _checked(name, path, _parsed(name, text)))
    return found


def blocks_of_settings(
    settings: Mapping[tuple[str, ...], tuple[str, Any]],
) -> dict[str, dict[str, Any]]:
    """The settings as blocks to be laid over those of a manifest."""
    blocks: dict[str, dict[str, Any]] = {}
    for path, (_, value) in settings.items():
        target: dict[str, Any] = blocks
        for key in path[:-1]:
            target = target.setdefault(key, {})
        target[path[-1]] = value
    return blocks


def _parsed(name: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise UsageError(f"${name}={text!r} is no YAML value", hint="quote it") from error


def _checked(name: str, path: tuple[str, ...], value: Any) -> Any:
    """The value, if a manifest may hold it under this path."""
    from pathlib import Path

    from flodl_cli.config.layers import validated
    from flodl_cli.config.load import Document

    data: Any = value
    for key in reversed(path):
        data = {key: data}
    try:
        validated(Document(file=Path(name), data=data))
    except ConfigErrors as error:
        first = error.errors[0]
        raise UsageError(f"${name}: {first.message}", hint=first.hint) from error
    return value
