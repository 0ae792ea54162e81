"""Writes a merged manifest as YAML in which every line says which file and line it comes from."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flodl_cli.config.kinds import PRESET_KEYS
from flodl_cli.config.layers import Layers, Origin
from flodl_cli.config.load import KeyPath, spell_key_path
from flodl_cli.config.presets import merge
from flodl_cli.config.spelling import spell_inside, spell_key, spell_value
from flodl_cli.config.variables import blocks_of_settings

_LEAST_COLUMN = 32
_WIDEST_ALIGNED = 60
_WIDEST_FLOW = 80

Settings = Mapping[tuple[str, ...], tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the output and the remark at its end, if it has one."""

    text: str
    tag: str = ""


def show(layers: Layers, settings: Settings, *, everything: bool = False) -> list[Line]:
    """The lines of the merged manifest.

    Args:
        layers: What to show.
        settings: Values from the environment, laid on top.
        everything: Also name the keys that an overlay took out.
    """
    return _Writer(layers, settings).lines(everything=everything)


def aligned(lines: list[Line]) -> list[Line]:
    """The lines with their texts filled up, so that the remarks stand below each other."""
    tagged = [len(line.text) for line in lines if line.tag and len(line.text) <= _WIDEST_ALIGNED]
    column = max(_LEAST_COLUMN, max(tagged, default=0) + 2)
    return [
        Line(
            line.text.ljust(column) if len(line.text) <= column - 2 else f"{line.text}  ", line.tag
        )
        if line.tag
        else line
        for line in lines
    ]


def effective(layers: Layers, settings: Settings) -> dict[str, Any]:
    """The merged values, those of the environment included."""
    return merge(layers.document.data, blocks_of_settings(settings))


def as_data(layers: Layers, settings: Settings) -> list[dict[str, Any]]:
    """One entry for each value: its path, value, place, kind, and what it replaced."""
    writer = _Writer(layers, settings)
    entries = [
        writer.entry(path, value) for path, value in _leaves(effective(layers, settings), ())
    ]
    entries += [
        {
            "path": spell_key_path(path),
            "value": None,
            "file": origin.file,
            "line": origin.key_line,
            "layer": writer.label(origin.file),
            "kind": "deleted",
            "overrides": [],
        }
        for path, origin in layers.deleted.items()
    ]
    return entries


class _Writer:
    """Turns values into lines."""

    def __init__(self, layers: Layers, settings: Settings) -> None:
        self._layers = layers
        self._settings = settings
        self._data = effective(layers, settings)
        self._directory = str(layers.document.file.parent)

    def lines(self, *, everything: bool) -> list[Line]:
        written = list(self._map(self._data, ()))
        if everything:
            written += [
                Line(f"# {spell_key_path(path)} deleted by {self._place(origin, key=True)}")
                for path, origin in self._layers.deleted.items()
            ]
        return written

    def label(self, file: str) -> str:
        """The file as seen from the manifest's folder."""
        return os.path.relpath(file, self._directory)

    def entry(self, path: KeyPath, value: Any) -> dict[str, Any]:
        """The value as data."""
        named = {
            "path": spell_key_path(path),
            "value": json.loads(json.dumps(value, default=str)),
        }
        history = self._layers.history.get(path, [])
        before = [{"file": o.file, "line": o.line, "value": o.value} for o in history]
        if path in self._settings:
            variable = self._settings[path][0]  # type: ignore[index]  # just found in it
            return {**named, "file": None, "line": None, "layer": f"${variable}", "kind": "env",
                    "overrides": before}  # fmt: skip
        origin = self._origin(path)
        kind = "override" if len(history) > 1 else "preset" if self._in_preset(path) else "base"
        return {**named, "file": origin.file, "line": origin.line,
                "layer": self.label(origin.file), "kind": kind,
                "overrides": before[:-1]}  # fmt: skip

    def _map(self, data: Mapping[str, Any], path: KeyPath) -> Iterator[Line]:
        indent = "  " * len(path)
        for key, value in data.items():
            here = (*path, key)
            head = f"{indent}{spell_key(key)}:"
            if isinstance(value, dict) and value:
                if self._is_preset(here):
                    yield Line(head, f"# {self._place(self._origin(here), key=True)} (preset)")
                    yield from self._preset(value, here)
                else:
                    yield Line(head)
                    yield from self._map(value, here)
            else:
                yield from self._value(head, indent, value, here)

    def _preset(self, value: Mapping[str, Any], path: KeyPath) -> Iterator[Line]:
        if self._changed_below(path):
            yield from self._map(value, path)
            return
        indent = "  " * len(path)
        for key, part in value.items():
            yield Line(f"{indent}{spell_key(key)}: {spell_inside(part)}")

    def _value(self, head: str, indent: str, value: Any, path: KeyPath) -> Iterator[Line]:
        line = (
            f"{head} {spell_inside(value)}"
            if isinstance(value, list | dict)
            else f"{head} {spell_value(value)}"
        )
        if not isinstance(value, list) or not value or len(line) <= _WIDEST_FLOW:
            yield Line(line, self._tag(path))
            return
        yield Line(head, self._tag(path))
        for item in value:
            yield Line(f"{indent}  - {spell_inside(item)}")

    def _tag(self, path: KeyPath) -> str:
        history = self._layers.history.get(path, [])
        if path in self._settings:
            again = " (override)" if history else ""
            return f"# ${self._settings[path][0]}{again}"  # type: ignore[index]  # just found in it
        again = " (override)" if len(history) > 1 else ""
        return f"# {self._place(self._origin(path))}{again}"

    def _place(self, origin: Origin, *, key: bool = False) -> str:
        line = origin.key_line if key else origin.line
        return self.label(origin.file) + (f":{line}" if line is not None else "")

    def _origin(self, path: KeyPath) -> Origin:
        history = self._layers.history[path]
        # A map is where it began; what replaced a value is where it stands now.
        return history[0] if isinstance(history[-1].value, dict) else history[-1]

    def _is_preset(self, path: KeyPath) -> bool:
        if len(path) != 2 or path[0] != "commands":
            return False
        command = self._data["commands"][path[1]]
        return (
            isinstance(command, dict)
            and not {"run", "path"} & set(command)
            and any(key in command for key in PRESET_KEYS)
        )

    def _in_preset(self, path: KeyPath) -> bool:
        return len(path) > 2 and self._is_preset(path[:2])

    def _changed_below(self, path: KeyPath) -> bool:
        touched = (
            known[: len(path)] == path and any(each.is_overlay for each in origins)
            for known, origins in self._layers.history.items()
        )
        deleted = (known[: len(path)] == path for known in self._layers.deleted)
        return any(touched) or any(deleted)


def _leaves(data: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value
