"""The files that make one manifest: parents first, then the overlay's, merged with a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flodl_cli.config.discover import overlay_of
from flodl_cli.config.load import Document, KeyPath, load
from flodl_cli.config.model import Manifest
from flodl_cli.config.problems import problems
from flodl_cli.errors import ConfigErrors

_INHERIT = "inherit-from"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """One value that a layer gave: where it stands, and what it is."""

    file: str
    line: int | None
    key_line: int | None
    value: Any
    is_overlay: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    """A merged manifest and where its values come from.

    ``document`` is the result; ``history`` has, for each key path that any layer set, what was
    set there, oldest first; ``deleted`` the layers that took a key out; ``files`` all layers.
    """

    document: Document
    files: tuple[str, ...]
    history: dict[KeyPath, list[Origin]] = field(default_factory=dict)
    deleted: dict[KeyPath, Origin] = field(default_factory=dict)


def load_layers(file: str, overlay: str | None) -> Layers:
    """Read ``file`` with its parents, and its overlay when it has one of that name.

    Raises:
        ConfigError, ConfigErrors: One of them is at fault, or they inherit in a circle.
    """
    base = _chain(Path(file), ())
    over_file = overlay_of(file, overlay) if overlay is not None else None
    over = _chain(Path(over_file), ()) if over_file is not None else []
    merger = _Merger(Path(file))
    for document in base:
        merger.add(document, is_overlay=False)
    for document in over:
        if str(document.file) not in merger.files:
            merger.add(document, is_overlay=True)
    return merger.result()


def validated(document: Document) -> Manifest:
    """The typed form of a manifest.

    Raises:
        ConfigErrors: It does not have that form.
    """
    try:
        return Manifest.model_validate(document.data)
    except ValidationError as error:
        raise ConfigErrors(problems(document, error)) from error


def _chain(file: Path, below: tuple[str, ...]) -> list[Document]:
    """The file and all it inherits from, the deepest ancestor first."""
    document = load(file)
    parent = validated(document).inherit_from
    if parent is None:
        return [document]
    path = _normal(file.parent / parent)
    here = (*below, str(_normal(file)))
    if str(path) in here:
        circle = [*here[here.index(str(path)) :], str(path)]
        raise document.error(
            (_INHERIT,), f"inherits in a circle: {' -> '.join(circle)}", hint="break the circle"
        )
    if not path.is_file():
        raise document.error(
            (_INHERIT,), f"there is no {path}", hint="correct the path; it starts at this file"
        )
    return [*_chain(path, here), document]


def _normal(path: Path) -> Path:
    """The path without ``..``, symbolic links kept, so that messages show what was written."""
    import os.path

    return Path(os.path.normpath(path))


class _Merger:
    """Lays documents on each other: maps merge, all else is replaced, overlay nulls delete.

    A key keeps the position of the first layer that had it.
    """

    def __init__(self, file: Path) -> None:
        self.files: list[str] = []
        self._merged = Document(file=file, data={})
        self._history: dict[KeyPath, list[Origin]] = {}
        self._deleted: dict[KeyPath, Origin] = {}

    def add(self, document: Document, *, is_overlay: bool) -> None:
        """Lay ``document`` on top."""
        self.files.append(str(document.file))
        data = {key: value for key, value in document.data.items() if key != _INHERIT}
        self._lay(self._merged.data, data, (), document, is_overlay=is_overlay)

    def result(self) -> Layers:
        """Everything that was laid, merged."""
        return Layers(
            document=self._merged,
            files=tuple(self.files),
            history=self._history,
            deleted=self._deleted,
        )

    def _lay(
        self,
        base: dict[str, Any],
        over: dict[str, Any],
        path: KeyPath,
        document: Document,
        *,
        is_overlay: bool,
    ) -> None:
        for key, value in over.items():
            here = (*path, key)
            origin = _origin(document, here, value, is_overlay=is_overlay)
            if value is None and is_overlay:
                if key in base:
                    del base[key]
                    self._forget(here)
                self._deleted[here] = origin
                continue
            self._deleted.pop(here, None)
            below = base.get(key)
            if isinstance(value, dict):
                if not isinstance(below, dict):
                    if key in base:
                        self._forget(here)
                    base[key] = below = {}
                self._note(here, origin, document)
                self._lay(below, value, here, document, is_overlay=is_overlay)
                continue
            if isinstance(below, dict):
                self._forget(here)
            base[key] = value
            self._note(here, origin, document)
            if isinstance(value, list):
                self._note_items(value, here, document)

    def _note(self, path: KeyPath, origin: Origin, document: Document) -> None:
        self._history.setdefault(path, []).append(origin)
        if origin.key_line is not None:
            self._merged.lines[path] = origin.key_line
        self._merged.files[path] = str(document.file)

    def _note_items(self, items: Sequence[Any], path: KeyPath, document: Document) -> None:
        for index in range(len(items)):
            here = (*path, index)
            if here in document.lines:
                self._merged.lines[here] = document.lines[here]
                self._merged.files[here] = str(document.file)

    def _forget(self, path: KeyPath) -> None:
        """Drop what lies below a key that no longer holds a map."""
        for known in [each for each in self._history if each[: len(path)] == path]:
            if known != path:
                del self._history[known]
            self._merged.lines.pop(known, None)


def _origin(document: Document, path: KeyPath, value: Any, *, is_overlay: bool) -> Origin:
    return Origin(
        file=str(document.file),
        line=document.value_lines.get(path, document.lines.get(path)),
        key_line=document.lines.get(path),
        value=value,
        is_overlay=is_overlay,
    )
