"""Reads a manifest into plain data and remembers the line of every key."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    Event,
    NodeEvent,
)
from ruamel.yaml.reader import ReaderError

from flodl_cli.config.tree import Place
from flodl_cli.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]

_MOST_BYTES = 1 << 20
_MOST_NODES = 100_000
_DEEPEST = 100
_YAML_TAG = "tag:yaml.org,2002:"
_NO_DATA = {"bytes": "!!binary", "CommentedSet": "!!set"}
"""What the parser makes of tags that a manifest has no use for."""

_SYNTAX_HINT = (
    "write one `key: value` a line, close quotes and brackets, and quote text that holds ': ' "
    "or starts with a mark"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Plain data of one manifest file, or of several merged into one.

    ``lines`` has the line of each key, ``value_lines`` that of each value, counted from 1;
    ``files`` the file of each key that does not stand in ``file`` itself.
    """

    file: Path
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    value_lines: dict[KeyPath, int] = field(default_factory=dict)
    files: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> Place:
        """Where ``path`` stands; where its nearest existing parent stands if it does not."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        file = self.files.get(known, str(self.file))
        return Place(file=file, line=self.lines.get(known), key_path=spell_key_path(path))

    def error(self, path: KeyPath, message: str, *, hint: str | None = None) -> ConfigError:
        """A ``ConfigError`` at ``path``."""
        place = self.place(path)
        return ConfigError(
            message, file=place.file, line=place.line, key_path=place.key_path, hint=hint
        )


def spell_key_path(path: KeyPath) -> str:
    """``("commands", "x", "args", 0)`` as ``commands.x.args[0]``."""
    text = ""
    for key in path:
        name = key or "''"
        text += f"[{key}]" if isinstance(key, int) else f".{name}" if text else str(name)
    return text


def spell(value: object) -> str:
    """A value as a person would write it in the file; a large one by its kind only."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Mapping():
            return "a map"
        case list() | tuple():
            return "a list"
        case str():
            return repr(value)
        case _:
            return str(value)


def load(file: Path) -> Document:
    """Read one manifest.

    Raises:
        ConfigError: The file cannot be read, is no YAML, or is not a map of text keys.
    """
    document = Document(file=file, data={})
    text = _read(file)
    try:
        root = _parse(file, text)
        if root is not None:
            document.data.update(_Plain(document).map(root, ()))
    except RecursionError as error:
        raise ConfigError(
            "nested deeper than a manifest ever is",
            file=str(file),
            line=_deep_line(text),
            hint="take brackets away",
        ) from error
    return document


def _parse(file: Path, text: str) -> CommentedMap | None:
    try:
        if "&" in text and "*" in text:
            _refuse_loops(file, text)
        parser = YAML(typ="rt", pure=True)
        parser.composer.warn_double_anchors = False  # YAML lets a later anchor take the name
        root = parser.load(text)
    except MarkedYAMLError as error:
        raise _syntax_error(file, error) from error
    except ReaderError as error:
        before = text[: error.position]
        raise ConfigError(
            f"the character {error.character:#04x} has no place in YAML",
            file=str(file),
            line=before.count("\n") + 1,
            hint="take it out",
        ) from error
    except YAMLError as error:
        raise ConfigError(f"not readable as YAML: {error}", file=str(file)) from error
    if root is None or isinstance(root, CommentedMap):
        return root
    raise ConfigError(
        "a manifest is a map of keys",
        file=str(file),
        line=root.lc.line + 1 if isinstance(root, CommentedSeq) else 1,
        hint="start with: description: ..., commands: ...",
    )


def _deep_line(text: str) -> int | None:
    """The line on which the text is nested deeper than any manifest needs."""
    depth = 0
    for event in YAML(typ="rt", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > _DEEPEST:
            return int(event.start_mark.line) + 1
    return None


def _refuse_loops(file: Path, text: str) -> None:
    """Stop at an alias inside of what it names, for which the parser would put nothing.

    Raises:
        ConfigError: There is one.
    """
    meant: dict[str, Event] = {}
    open_ones: list[Event] = []
    for event in YAML(typ="rt", pure=True).parse(text):
        match event:
            case AliasEvent() if any(each is meant.get(event.anchor) for each in open_ones):
                raise ConfigError(
                    f"*{event.anchor} refers to what it stands in",
                    file=str(file),
                    line=event.start_mark.line + 1,
                    hint="an alias repeats what an anchor before it names; write out what is meant",
                )
            case CollectionEndEvent():
                open_ones.pop()
            case CollectionStartEvent():
                open_ones.append(event)
        if isinstance(event, NodeEvent) and event.anchor and not isinstance(event, AliasEvent):
            meant[event.anchor] = event


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(
                f"larger than {_MOST_BYTES >> 20} MiB, as no manifest is",
                file=str(file),
                hint="take out what is no setting, or divide it with inherit-from and path",
            )
        return content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", file=str(file), hint="check its permissions"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"not UTF-8 text: byte {error.object[error.start]:#04x}",
            file=str(file),
            line=line,
            hint="save the file as UTF-8",
        ) from error


def _syntax_error(file: Path, error: MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    message = " ".join(part for part in (error.context, error.problem) if part)
    hint = _SYNTAX_HINT
    if error.problem and error.problem.startswith("found duplicate key"):
        # The long form goes on to advise on the parser's own settings.
        key = error.problem.split('"')[1]
        message, hint = f"the key {key!r} is given twice in one map", "keep one of them"
    elif error.problem and "'\\t'" in error.problem:
        hint = "indent with blanks: YAML takes no tab there"
    return ConfigError(
        message or "not readable as YAML",
        file=str(file),
        line=mark.line + 1 if mark else None,
        hint=hint,
    )


class _Plain:
    """Turns the parser's types into plain ones and notes the lines on the way."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0

    def map(self, node: CommentedMap, path: KeyPath) -> dict[str, Any]:
        """The map as a dict of plain values."""
        plain: dict[str, Any] = {}
        for key, value in node.items():
            if not isinstance(key, str):
                self._note(path, _line(node, key, path, self._document.lines))
                raise self._document.error(
                    path,
                    f"the key is {spell(key)}, not text",
                    hint="quote it, or name it otherwise",
                )
            key_text = self._text(str(key), path)
            here = (*path, key_text)
            self._note(here, _line(node, key, path, self._document.lines))
            self._note_value(here, node.lc.data, key)
            plain[key_text] = self._value(value, here)
        return plain

    def _value(self, value: object, path: KeyPath) -> Any:
        if not isinstance(value, CommentedMap | CommentedSeq):
            return self._scalar(value, path)
        if value.tag.value is not None:
            raise self._no_tag(value.tag.value, path)
        if isinstance(value, CommentedMap):
            return self.map(value, path)
        return list(self._items(value, path))

    def _items(self, node: CommentedSeq, path: KeyPath) -> Iterator[Any]:
        for index, value in enumerate(node):
            here = (*path, index)
            self._note(here, _line(node, index, path, self._document.lines))
            yield self._value(value, here)

    def _scalar(self, value: object, path: KeyPath) -> Any:
        match value:
            case None | bool():
                return value
            case str():
                return self._text(str(value), path)
            case int():
                return bool(value) if type(value).__name__ == "ScalarBoolean" else int(value)
            case float():
                return float(value)
            case datetime.date():
                return value
            case TaggedScalar() if value.tag.value == f"{_YAML_TAG}str":
                return self._text(value.value, path)
            case TaggedScalar():
                raise self._no_tag(value.tag.value, path)
        raise self._no_tag(_NO_DATA[type(value).__name__], path)

    def _no_tag(self, tag: str, path: KeyPath) -> ConfigError:
        spelled = tag.replace(_YAML_TAG, "!!", 1)
        return self._document.error(
            path, f"the tag {spelled} has no meaning here", hint="take it away"
        )

    def _text(self, text: str, path: KeyPath) -> str:
        """The text with the halves that JSON writes for rare characters put together."""
        if "\0" in text:
            raise self._document.error(
                path, "holds the character 0x00, which no program can be given", hint="take it out"
            )
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise self._document.error(path, "holds half of a character") from error

    def _note_value(
        self, path: KeyPath, positions: Mapping[object, Sequence[int]] | None, key: object
    ) -> None:
        if positions and key in positions:
            self._document.value_lines[path] = int(positions[key][2]) + 1

    def _note(self, path: KeyPath, line: int | None) -> None:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise self._document.error(
                path[:1],  # what an alias brings in has lines of its own, elsewhere
                f"more than {_MOST_NODES} values once aliases are followed",
                hint="repeat fewer of them",
            )
        if line is not None:
            self._document.lines[path] = line


def _line(
    node: CommentedMap | CommentedSeq,
    key: str | int,
    parent: KeyPath,
    lines: Mapping[KeyPath, int],
) -> int | None:
    positions: Mapping[object, Sequence[int]] | None = node.lc.data
    if positions and key in positions:
        return int(positions[key][0]) + 1
    return lines.get(parent)  # a key that a merge (<<) brought in has no line of its own
