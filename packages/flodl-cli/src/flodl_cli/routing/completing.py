"""Answers the question of a completion script: what may stand at this place of the line.

It never fails and never asks a program: what cannot be found out is left out.
"""
# As quick as help: pathlib would take a fifth of the time.

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flodl_cli.args.schema import Option, Schema
from flodl_cli.config.discover import find_manifest, overlay_names
from flodl_cli.config.project import open_project
from flodl_cli.config.tree import Level, PathCommand, Program, RunCommand
from flodl_cli.context.flags import GLOBAL_FLAGS, scan
from flodl_cli.errors import FdlError
from flodl_cli.names import BUILTIN_COMMANDS, SHELLS, SUBCOMMANDS
from flodl_cli.project.schema import known_schema
from flodl_cli.routing.options import ARGUMENTS, OPTION_VALUES, OPTIONS
from flodl_cli.routing.walk import descend
from flodl_cli.terminal import Terminal

_COMPLETER_LIMIT_S = 1.0
_TAKES_VARIANT = ("activate", "remove", "run", "info", "which", "env", "flags", "cmake", "verify",
                  "repair")  # fmt: skip
_CATALOG_OPTIONS = {"--cuda": "cuda", "--rocm": "rocm"}


class Candidate(NamedTuple):
    """A word that may stand there, and what it means."""

    word: str
    meaning: str = ""


def answer(argv: Sequence[str], terminal: Terminal) -> int:
    """Print the candidates for ``SHELL CWORD -- WORDS...``, one a line; always ends with 0."""
    try:
        shell, position, _, *words = argv
        place = int(position)
        current = words[place] if place < len(words) else ""
        found = candidates(words[1:place], current, os.getcwd(), os.environ)  # noqa: PTH109 - as above
        fitting = [each for each in found if each.word.startswith(current)]
        lines = [_line(each, shell) for each in dict.fromkeys(fitting)]
        if lines:
            terminal.print("\n".join(lines))
    except Exception:  # noqa: BLE001 - a person is typing: no answer is better than an error
        return 0
    return 0


def candidates(
    before: Sequence[str], current: str, directory: str, environ: Mapping[str, str]
) -> Iterator[Candidate]:
    """What may stand after the words ``before``, the name of the program left out."""
    if "--" in before:
        return
    manifest = find_manifest(directory)
    overlays = overlay_names(manifest) if manifest else []
    if before and before[-1] == "--env":
        yield from map(Candidate, overlays)
        return
    if before and before[-1] == "--gpus":
        yield from _gpus()
        return
    if current.startswith("@"):
        yield from (Candidate(f"@{name}", "overlay") for name in overlays)
        return
    line = scan(before)
    words = line.words
    if words and words[0] in BUILTIN_COMMANDS:
        yield from _of_builtin(words, current, directory, environ)
        return
    overlay = line.flags.overlay or environ.get("FDL_ENV") or None
    root = open_project(directory, overlay)
    if words and words[0] in overlays and (root is None or words[0] not in root.commands):
        overlay, words = words[0], words[1:]
        root = open_project(directory, overlay)
    yield from _of_project(root, words, current, overlays)


def _of_project(
    root: Level | None, words: Sequence[str], current: str, overlays: Sequence[str]
) -> Iterator[Candidate]:
    if not words:
        yield from (Candidate(name, text) for name, text in BUILTIN_COMMANDS.items())
        yield from (Candidate(name, "overlay") for name in overlays)
    if root is not None:
        levels, target, depth = descend(root, words)
        if target is None or isinstance(target, PathCommand):
            level = levels[-1]
            if depth == len(words):
                yield from _commands(level)
            if level.program is not None and words:
                yield from _of_program(level.program, words[depth:], current)
        elif not isinstance(target, RunCommand):
            yield from _of_program(target.program, words[depth:], current)
    if current.startswith("-"):
        for spelling, text in GLOBAL_FLAGS:
            for part in spelling.split(", "):
                if part.startswith("-"):
                    yield Candidate(part.split()[0], text)


def _commands(level: Level) -> Iterator[Candidate]:
    for name, command in level.commands.items():
        yield Candidate(name, command.description)


def _of_program(program: Program, rest: Sequence[str], current: str) -> Iterator[Candidate]:
    schema = known_schema(program).schema
    if schema is None:
        return
    for word in rest:
        schema = schema.commands.get(word, schema)
    option = _option_before(schema, rest)
    if option is not None:
        yield from map(Candidate, _values(option, program))
        return
    yield from (Candidate(name, each.description) for name, each in schema.commands.items())
    if current.startswith("-"):
        yield from (Candidate(f"--{each.name}", each.description) for each in schema.options)
    for argument in schema.args:
        yield from map(Candidate, _values(argument, program))  # type: ignore[arg-type]  # both have what it reads


def _option_before(schema: Schema, rest: Sequence[str]) -> Option | None:
    """The option whose value comes next."""
    if not rest:
        return None
    word = rest[-1]
    option = None
    if word.startswith("--"):
        option = schema.option(word[2:])
    elif word.startswith("-") and len(word) > 1:
        option = schema.letter(word[-1])
    return option if option is not None and option.type != "bool" else None


def _values(option: Option, program: Program) -> list[str]:
    if option.choices:
        return [str(each) for each in option.choices]
    if option.completer is None:
        return []
    from flodl_cli.host.process import ask

    try:
        said = ask(["sh", "-c", option.completer], directory=program.directory,
                   limit_s=_COMPLETER_LIMIT_S)  # fmt: skip
    except FdlError:
        return []
    return said.out.split()


def _of_builtin(
    words: Sequence[str], current: str, directory: str, environ: Mapping[str, str]
) -> Iterator[Candidate]:
    name, *rest = words
    options = OPTIONS.get(" ".join(words[:2]), OPTIONS.get(name, ()))
    if words[-1] in OPTION_VALUES and words[-1] in options:
        yield from map(Candidate, OPTION_VALUES[words[-1]])
        return
    if current.startswith("-"):
        yield from map(Candidate, (*options, "--help"))
        return
    if not rest:
        yield from map(Candidate, (*SUBCOMMANDS.get(name, ()), *ARGUMENTS.get(name, ())))
        return
    if name == "libtorch":
        if rest[-1] in _CATALOG_OPTIONS or rest[-1] == "--version":
            yield from map(Candidate, _published(rest[-1]))
        elif rest[0] in _TAKES_VARIANT and not current.startswith("-"):
            yield from map(Candidate, _variants(directory, environ))
    elif words == ("torch", "use"):
        yield from map(Candidate, ("auto", *_backends(directory)))
    elif (name, rest[0]) == ("config", "show"):
        manifest = find_manifest(directory)
        yield from map(Candidate, overlay_names(manifest) if manifest else ())


def _published(option: str) -> list[str]:
    from flodl_cli.host.platform import this_platform
    from flodl_cli.libtorch.catalog import load_catalog

    catalog = load_catalog(this_platform())
    return catalog.versions if option == "--version" else catalog.backends(_CATALOG_OPTIONS[option])


def _backends(directory: str) -> list[str]:
    from pathlib import Path

    from flodl_cli.host.platform import this_platform
    from flodl_cli.libtorch.catalog import load_catalog
    from flodl_cli.libtorch.versions import wanted_version

    catalog = load_catalog(this_platform())
    version = wanted_version(Path(directory), catalog).version
    return [bucket.name for bucket in catalog.buckets(version)]


def _variants(directory: str, environ: Mapping[str, str]) -> list[str]:
    from pathlib import Path

    from flodl_cli.libtorch.home import find_home
    from flodl_cli.libtorch.store import KINDS

    root = find_home(Path(directory), environ).libtorch
    folders = (file.parent for kind in KINDS for file in (root / kind).glob("*/.arch"))
    return sorted(f"{folder.parent.name}/{folder.name}" for folder in folders)


def _gpus() -> Iterator[Candidate]:
    from flodl_sys.gpu import scan_gpus

    yield Candidate("all", "every GPU of this machine")
    yield Candidate("none", "no GPU")
    for gpu in scan_gpus().gpus:
        yield Candidate(str(gpu.index), gpu.name)


def _line(candidate: Candidate, shell: str) -> str:
    if shell == SHELLS[0] or not candidate.meaning:
        return candidate.word
    return f"{candidate.word}\t{candidate.meaning.splitlines()[0]}"
