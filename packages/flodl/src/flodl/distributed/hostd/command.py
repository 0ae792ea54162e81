"""The command line of a program, taken apart, so that it can be run again elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_WITH_VALUE = frozenset("cmWX")
_LONG_WITH_VALUE = frozenset({"--check-hash-based-pycs"})
_INTERACTIVE = "i"


class CommandKind(StrEnum):
    """How Python was told what to run."""

    SCRIPT = "script"
    MODULE = "module"
    CODE = "code"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What ``python`` was asked to run, and how."""

    kind: CommandKind
    target: str
    """File, module name or code."""
    args: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options of the interpreter, without those that ask for a prompt afterwards."""

    @classmethod
    def parse(cls, orig_argv: Sequence[str]) -> Command | None:
        """Return the command behind ``sys.orig_argv``.

        ``None`` means that there is nothing to run again: a prompt, or a program on standard input.
        """
        options: list[str] = []
        words = list(orig_argv[1:])
        while words:
            word = words.pop(0)
            if word == "-":
                return None
            if not word.startswith("-"):
                return cls._of(CommandKind.SCRIPT, word, words, options)
            if word.startswith("--"):
                options.append(word)
                if word in _LONG_WITH_VALUE and words:
                    options.append(words.pop(0))
                continue
            flags, letter, value = _split(word)
            if letter and not value:
                value = words.pop(0) if words else ""
            if letter in {"c", "m"}:
                options += [f"-{flags}"] if flags else []
                kind = CommandKind.CODE if letter == "c" else CommandKind.MODULE
                return cls._of(kind, value, words, options)
            if flags or letter:
                options.append(f"-{flags}{letter}")
                options += [value] if letter else []
        return None

    @classmethod
    def _of(
        cls, kind: CommandKind, target: str, args: Sequence[str], options: Sequence[str]
    ) -> Command:
        return cls(kind=kind, target=target, args=tuple(args), options=tuple(options))

    @property
    def words(self) -> tuple[str, ...]:
        """The words after the interpreter's own name."""
        switch = {
            CommandKind.SCRIPT: (),
            CommandKind.MODULE: ("-m",),
            CommandKind.CODE: ("-c",),
        }[self.kind]
        return (*self.options, *switch, self.target, *self.args)

    def to_body(self) -> dict[str, object]:
        """Return plain values, for a message."""
        return {
            "kind": self.kind.value,
            "target": self.target,
            "args": list(self.args),
            "options": list(self.options),
        }

    @classmethod
    def from_body(cls, body: dict[str, object]) -> Command:
        """Return the command of a message.

        Raises:
            ValueError: The body describes no command.
        """
        target, kind = body.get("target"), body.get("kind")
        if not isinstance(target, str) or not isinstance(kind, str):
            raise ValueError(f"no command: {body!r}")  # noqa: TRY004 (one error for all of it)
        args, options = _words(body.get("args")), _words(body.get("options"))
        return cls._of(CommandKind(kind), target, args, options)


def _words(value: object) -> list[str]:
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return [str(word) for word in value]
    raise ValueError(f"no words of a command: {value!r}")


def _split(word: str) -> tuple[str, str, str]:
    """Split ``-uWerror`` into its plain flags, the letter that takes a value, and that value."""
    flags = ""
    for place, letter in enumerate(word[1:], start=1):
        if letter in _WITH_VALUE:
            return flags, letter, word[place + 1 :]
        if letter != _INTERACTIVE:
            flags += letter
    return flags, "", ""
