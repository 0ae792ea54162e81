"""Commands that a package of the project's environment brings: scripts in ``fdl.plugins``."""
# ruff: noqa: PTH118, PTH207
# Asked on the way to every command that no manifest has, where pathlib would cost time.

from __future__ import annotations

import glob
import os.path
import sys
from collections.abc import Mapping

from flodl_cli.context.application import AppContext
from flodl_cli.context.flags import CommandLine
from flodl_cli.routing.dispatch import run_program

_GROUP = "fdl.plugins"


def find_plugin(name: str, directory: str, environ: Mapping[str, str]) -> str | None:
    """The script ``name`` of the environment at ``directory``, if its package offers it to fdl."""
    if os.path.basename(name) != name:  # noqa: PTH119 - as above
        return None
    for root in (environ.get("VIRTUAL_ENV"), os.path.join(directory, ".venv"), sys.prefix):
        if not root:
            continue
        script = os.path.join(root, *_script(name))
        if os.path.isfile(script) and name in _offered(root):  # noqa: PTH113 - as above
            return script
    return None


def run_plugin(program: str, line: CommandLine, directory: str, context: AppContext) -> int:
    """Run a plug-in with every word that follows its name, and return the exit code."""
    words = [*line.words[1:], *(["--help"] if line.flags.help else [])]
    words += ["--", *line.tail] if line.tail is not None else []
    return run_program([program, *words], directory, context)


def _script(name: str) -> tuple[str, ...]:
    return ("Scripts", f"{name}.exe") if sys.platform == "win32" else ("bin", name)


def _offered(root: str) -> set[str]:
    """Names in the group, from the metadata of the installed packages."""
    library = ("Lib",) if sys.platform == "win32" else ("lib", "python*")
    pattern = os.path.join(root, *library, "site-packages", "*.dist-info", "entry_points.txt")
    names: set[str] = set()
    for file in glob.glob(pattern):
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123 - as above
            names |= _names(stream.read())
    return names


def _names(text: str) -> set[str]:
    names = set()
    group = ""
    for line in text.splitlines():
        if line.startswith("["):
            group = line.strip(" []")
        elif group == _GROUP and "=" in line:
            names.add(line.partition("=")[0].strip())
    return names
