"""Reads a command line by a schema. The one contract for programs and for fdl's own checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flodl_cli.args.schema import Option, Positional, Schema
from flodl_cli.errors import UsageError

_NEGATIVE = re.compile(r"-(\d|\.\d).*")
_CONVERTERS: dict[str, Any] = {"string": str, "int": int, "float": float}
_SPOKEN = {"string": "text", "int": "a whole number", "float": "a number", "path": "a path"}


def parse_words(schema: Schema, words: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The value of every argument and option, by name.

    A value comes from ``words``, else from the option's variable if that is not empty, else from
    the default.

    Raises:
        UsageError: The words do not fit the schema.
    """
    reader = _Reader(schema, words)
    values: dict[str, Any] = {}
    for option in schema.options:
        if option.name in reader.given:
            values[option.name] = reader.given[option.name]
            continue
        text = environ.get(option.env) if option.env else None
        values[option.name] = (
            _from_environment(option, text) if text else _default(option.default, option.type)
        )
    return values | _assigned(schema.args, reader.positionals)


def check_words(schema: Schema, words: Sequence[str]) -> None:
    """Check the values of all options that ``words`` holds; others only if the schema is strict.

    Raises:
        UsageError: A value does not fit, or an option is unknown to a strict schema.
    """
    _Reader(schema, words, lenient=not schema.strict)


def looks_like_option(word: str) -> bool:
    """Whether a word is an option: a lone dash and negative numbers are values."""
    return word.startswith("-") and word != "-" and not _NEGATIVE.fullmatch(word)


class _Reader:
    """Takes the words apart."""

    def __init__(self, schema: Schema, words: Sequence[str], *, lenient: bool = False) -> None:
        self.given: dict[str, Any] = {}
        self.positionals: list[str] = []
        self._schema = schema
        self._lenient = lenient
        self._rest = list(reversed(words))
        while self._rest:
            word = self._rest.pop()
            if word == "--":
                self.positionals += reversed(self._rest)
                break
            if not looks_like_option(word):
                self.positionals.append(word)
            elif word.startswith("--"):
                self._long(word)
            else:
                self._cluster(word)

    def _long(self, word: str) -> None:
        name, equals, value = word[2:].partition("=")
        option = self._schema.option(name)
        if option is None:
            if self._lenient:
                return
            close = _near(name, [each.name for each in self._schema.options])
            raise UsageError(
                f"unknown option --{name}",
                hint=f"did you mean {' or '.join(f'--{each}' for each in close)}?"
                if close
                else None,
            )
        self._take(option, f"--{name}", value if equals else None)

    def _cluster(self, word: str) -> None:
        letters, equals, value = word[1:].partition("=")
        for index, letter in enumerate(letters):
            option = self._schema.letter(letter)
            if option is None:
                if self._lenient:
                    return
                raise UsageError(f"unknown option -{letter}" + (f" in {word}" * (len(word) > 2)))
            last = index == len(letters) - 1
            if option.type != "bool" and not last:
                raise UsageError(f"{word}: -{letter} takes a value, and only the last one may")
            self._take(option, f"-{letter}", value if equals and last else None)

    def _take(self, option: Option, spelled: str, value: str | None) -> None:
        if option.type == "bool":
            if value is not None:
                raise UsageError(f"{spelled} is a switch and takes no value, and got {value!r}")
            self.given[option.name] = True
            return
        if value is None:
            has_word = bool(self._rest) and not looks_like_option(self._rest[-1])
            if not has_word:
                if option.bare is None:
                    raise UsageError(f"{spelled} needs a value")
                self.given[option.name] = option.bare
                return
            value = self._rest.pop()
        converted = convert(option, spelled, value)
        if option.type.startswith("list["):
            self.given.setdefault(option.name, []).extend(converted)
        else:
            self.given[option.name] = converted


def convert(entry: Option | Positional, spelled: str, text: str) -> Any:
    """The value that ``text`` stands for; a list for an entry that holds one.

    Raises:
        UsageError: It stands for none, or for one that is not among the choices.
    """
    if entry.type.startswith("list["):
        item = entry._replace(type=entry.type[5:-1])
        return [convert(item, spelled, part) for part in text.split(",")]
    if entry.type == "path":
        from pathlib import Path  # fdl's help uses this module, and pathlib is slow to import

        return Path(text)
    try:
        value = _CONVERTERS[entry.type](text)
    except ValueError as error:
        raise UsageError(f"{spelled} {text!r} is not {_SPOKEN[entry.type]}") from error
    if entry.choices and value not in entry.choices and text not in entry.choices:
        close = _near(text, [str(each) for each in entry.choices])
        legal = ", ".join(str(each) for each in entry.choices)
        raise UsageError(
            f"{spelled} {text!r} is none of: {legal}",
            hint=f"did you mean {close[0]}?" if close else None,
        )
    return value


def _near(word: str, names: list[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(word, names, 3)


def _from_environment(option: Option, text: str) -> Any:
    if option.type != "bool":
        return convert(option, f"${option.env}", text)
    known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.lower() not in known:
        raise UsageError(f"${option.env} {text!r} is neither 1 nor 0")
    return known[text.lower()]


def _assigned(args: Sequence[Positional], words: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    rest = list(words)
    for entry in args:
        if not rest:
            if entry.required:
                raise UsageError(f"the argument {entry.name} is missing")
            values[entry.name] = _default(entry.default, entry.type)
            continue
        taken, rest = (rest, []) if entry.variadic else (rest[:1], rest[1:])
        read = [convert(entry, entry.name, word) for word in taken]
        if entry.type.startswith("list["):
            values[entry.name] = [each for part in read for each in part]
        else:
            values[entry.name] = read if entry.variadic else read[0]
    if rest:
        raise UsageError(f"unexpected argument {rest[0]!r}")
    return values


def _default(value: Any, kind: str) -> Any:
    if kind == "bool":
        return bool(value)
    if kind.startswith("list["):
        return list(value or [])
    return value
