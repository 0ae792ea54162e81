"""The global flags: valid at any position before the first standalone ``--``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flodl_cli.errors import UsageError
from flodl_cli.runner.gpus import GpuScope, parse_gpus

_VERBOSITY = {"-v": 2, "-vv": 3, "-vvv": 4, "-q": 0, "--quiet": 0}
_SWITCHES = {
    "-h": "--help",
    "--help": "--help",
    "-V": "--version",
    "--version": "--version",
    "--no-append": "--no-append",
    "--no-prebuild": "--no-prebuild",
    "--explain": "--explain",
    "--refresh-schema": "--refresh-schema",
}
_VALUES = {"--env": "the name of an overlay", "--gpus": "the GPUs: all, none, or a list like 0,1"}

_HAS_OWN_VERSION = "libtorch"
"""The built-in command whose own commands take ``--version V``: that of torch."""

GLOBAL_FLAGS: tuple[tuple[str, str], ...] = (
    ("-h, --help", "Show help; after a command, the help of that command"),
    ("-V, --version", "Show the version"),
    ("--env NAME, @NAME", "Merge fdl.NAME.yml into the manifest"),
    ("--gpus SPEC", "Limit a command to some GPUs: all, none, or indices and UUIDs (0,1)"),
    ("-v, -vv, -vvv", "Say more: verbose, debug, trace"),
    ("-q, --quiet", "Say less"),
    ("--ansi, --no-ansi", "Force color, or forbid it"),
    ("--no-append", "Leave out what a run command appends"),
    ("--explain", "Print what a command would run, and run nothing"),
    ("--refresh-schema", "Ask the program of a command for its arguments anew"),
)
"""Spelling and meaning of each global flag, in the order help shows them."""


class GlobalFlags(NamedTuple):
    """The global flags of one command line; ``None`` means not given."""

    help: bool = False
    version: bool = False
    verbosity: int | None = None
    color: bool | None = None
    no_append: bool = False
    no_prebuild: bool = False
    explain: bool = False
    refresh_schema: bool = False
    gpus: GpuScope | None = None
    overlay: str | None = None


class CommandLine(NamedTuple):
    """A command line taken apart.

    ``given`` holds the global flags as they were typed, ``tail`` what follows the first ``--``,
    or ``None`` when there was no ``--``.
    """

    flags: GlobalFlags
    given: tuple[str, ...]
    words: tuple[str, ...]
    tail: tuple[str, ...] | None


def scan(argv: Sequence[str]) -> CommandLine:
    """Take the global flags out of ``argv``.

    Raises:
        UsageError: A flag lacks its value, is given twice, or contradicts another.
    """
    tokens = list(argv)
    tail: tuple[str, ...] | None = None
    if "--" in tokens:
        cut = tokens.index("--")
        tokens, tail = tokens[:cut], tuple(tokens[cut + 1 :])
    scanner = _Scanner(tokens)
    flags = scanner.flags()
    return CommandLine(
        flags=flags, given=tuple(scanner.given), words=tuple(scanner.words), tail=tail
    )


class _Scanner:
    """Sorts the tokens before the first ``--`` into flags and words."""

    def __init__(self, tokens: list[str]) -> None:
        self.given: list[str] = []
        self.words: list[str] = []
        self._switches: set[str] = set()
        self._verbosity: int | None = None
        self._values: dict[str, str] = {}
        rest = list(reversed(tokens))
        while rest:
            self._take(rest.pop(), rest)

    def flags(self) -> GlobalFlags:
        on = self._switches
        gpus = self._values.get("--gpus")
        return GlobalFlags(
            help="--help" in on,
            version="--version" in on,
            verbosity=self._verbosity,
            color=self._color(),
            no_append="--no-append" in on,
            no_prebuild="--no-prebuild" in on,
            explain="--explain" in on,
            refresh_schema="--refresh-schema" in on,
            gpus=None if gpus is None else parse_gpus(gpus),
            overlay=self._overlay(),
        )

    def _take(self, word: str, rest: list[str]) -> None:
        name, equals, value = word.partition("=")
        if name == "--version" and self.words[:1] == [_HAS_OWN_VERSION] and len(self.words) > 1:
            self.words.append(word)
            return
        if word in _SWITCHES:
            self._switches.add(_SWITCHES[word])
        elif word in _VERBOSITY:
            self._verbosity = _VERBOSITY[word]
        elif word in ("--ansi", "--no-ansi"):
            self._switches.add(word)
        elif word.startswith("@"):
            self._keep("@", word[1:])
        elif name in _VALUES:
            if not equals:
                if not rest or rest[-1].startswith("--"):
                    raise UsageError(f"{name} needs a value", hint=f"give {_VALUES[name]}")
                self.given.append(word)
                word = value = rest.pop()
            self._keep(name, value)
        else:
            self.words.append(word)
            return
        self.given.append(word)

    def _keep(self, name: str, value: str) -> None:
        if name in self._values:
            raise UsageError(
                f"{name} is given twice: {self._values[name]!r} and {value!r}",
                hint="keep one of them",
            )
        self._values[name] = value

    def _color(self) -> bool | None:
        asked = {"--ansi", "--no-ansi"} & self._switches
        if len(asked) == 2:
            raise UsageError("--ansi and --no-ansi contradict each other", hint="give one of them")
        return "--ansi" in asked if asked else None

    def _overlay(self) -> str | None:
        named = {name: self._values[name] for name in ("--env", "@") if name in self._values}
        for name, value in named.items():
            if not value.strip():
                raise UsageError(f"{name} names no overlay", hint="give a name: --env ci, or @ci")
        if len(set(named.values())) > 1:
            raise UsageError(
                f"two overlays are asked for: {' and '.join(named.values())}",
                hint="keep one of --env NAME and @NAME",
            )
        return next(iter(named.values()), None)
