"""Spells single values as YAML: plain wherever that reads back as the same value."""

from __future__ import annotations

import re
from typing import Any

# A point begins a number too, unless a slash follows: ./tool and ../data are text.
_PLAIN = re.compile(r"(?:[A-Za-z_]|\.{0,2}/)[A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def spell_key(key: str) -> str:
    """A key before its colon."""
    return _text(key, "{ %s: 1 }", {key: 1})


def spell_value(value: Any) -> str:
    """A value that ends its line."""
    return _text(value, "k: %s", {"k": value}) if isinstance(value, str) else spell_inside(value)


def spell_inside(value: Any) -> str:
    """A value on one line, inside brackets or braces if need be."""
    match value:
        case str():
            spelled = _text(value, "[ %s ]", [value])
        case list():
            spelled = f"[{', '.join(spell_inside(each) for each in value)}]"
        case dict():
            pairs = (f"{spell_key(key)}: {spell_inside(each)}" for key, each in value.items())
            spelled = f"{{ {', '.join(pairs)} }}" if value else "{}"
        case float():
            spelled = repr(value).replace("inf", ".inf").replace("nan", ".nan")
        case None:
            spelled = "null"
        case bool():
            spelled = str(value).lower()
        case _:
            spelled = str(value)
    return spelled


def _text(text: str, form: str, meaning: Any) -> str:
    """The text, quoted only where YAML would read something else in ``form``."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if text.isprintable() and _reads_as(form % text, meaning) and text.strip() == text:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    return {"\n": "\\n", "\t": "\\t"}.get(char, f"\\U{ord(char):08x}")


def _reads_as(source: str, meaning: Any) -> bool:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return bool(YAML(typ="safe", pure=True).load(source) == meaning)
    except (YAMLError, ValueError):
        return False
