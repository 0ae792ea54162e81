"""How this fdl came here, and how to put one on the PATH of the user."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.host.packages import reason_of
from flodl_cli.host.process import ask

_PACKAGE = "flodl-cli"
_PATH_LINES = {
    "fish": "fish_add_path {folder}",
    "bash": 'export PATH="{folder}:$PATH"',
    "zsh": 'export PATH="{folder}:$PATH"',
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """This fdl: the way it was installed, and the folder that holds it."""

    mode: str
    """``uv tool``, ``pipx``, ``editable`` or ``environment``."""
    place: Path


def this_installation(prefix: Path | None = None) -> Installation:
    """The installation that runs now."""
    checkout = _editable_source()
    if checkout is not None:
        return Installation(mode="editable", place=checkout)
    place = Path(sys.prefix) if prefix is None else prefix
    parts = place.parts
    if ("uv", "tools") in itertools.pairwise(parts):
        return Installation(mode="uv tool", place=place)
    if ("pipx", "venvs") in itertools.pairwise(parts):
        return Installation(mode="pipx", place=place)
    return Installation(mode="environment", place=place)


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What an installation did: by which means, and where the program lies now."""

    means: str
    program: Path


def install(environ: Mapping[str, str]) -> Done:
    """Put fdl on the PATH of the user: by uv, else by pipx, else by a launcher of our own.

    Raises:
        FdlError: The client says no, or the launcher cannot be written.
    """
    for client, words in (
        ("uv", ("tool", "install", "--upgrade", _PACKAGE)),
        ("pipx", ("install", "--force", _PACKAGE)),
    ):
        if shutil.which(client) is not None:
            _run([client, *words])
            return Done(means=f"{client} {words[0]}", program=bin_folder(environ) / "fdl")
    return _launcher([sys.executable, "-m", "flodl_cli"], environ)


def install_checkout(checkout: Path, environ: Mapping[str, str]) -> Done:
    """Put the fdl of a checkout on the PATH, so that what is edited there is what runs.

    Raises:
        UsageError: ``checkout`` is not one.
        FdlError: The launcher cannot be written, or would start itself.
    """
    script = checkout / "fdl"
    if not (checkout / "packages" / _PACKAGE / "pyproject.toml").is_file() or not script.is_file():
        raise UsageError(
            f"{checkout} is no checkout of flodl", hint="run it from inside one: fdl install --dev"
        )
    return _launcher([str(script)], environ)


def find_checkout(directory: Path) -> Path | None:
    """The checkout of flodl around ``directory``."""
    for folder in (directory, *directory.parents):
        if (folder / "packages" / _PACKAGE / "pyproject.toml").is_file():
            return folder
    return None


def bin_folder(environ: Mapping[str, str]) -> Path:
    """The folder for the user's own programs."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_BIN_HOME") or home / ".local" / "bin")


def path_line(folder: Path, environ: Mapping[str, str]) -> str | None:
    """The line that puts ``folder`` on the PATH of the user's shell; ``None`` when it is there."""
    if str(folder) in environ.get("PATH", "").split(os.pathsep):
        return None
    shell = Path(environ.get("SHELL", "")).name
    return _PATH_LINES.get(shell, _PATH_LINES["bash"]).format(folder=folder)


def _launcher(command: list[str], environ: Mapping[str, str]) -> Done:
    file = bin_folder(environ) / "fdl"
    if Path(command[0]).resolve() == file.resolve():
        raise FdlError(
            f"{file} would start itself", hint="run `fdl install --dev` from the checkout's ./fdl"
        )
    text = f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'
    temporary = file.with_name(f".fdl.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(0o755)
        temporary.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise FdlError(f"{file} cannot be written: {error.strerror}") from error
    return Done(means="launcher", program=file)


def _run(argv: list[str]) -> None:
    answer = ask(argv)
    if answer.code != 0:
        raise FdlError(
            f"{shlex.join(argv)} failed: {reason_of(answer)}",
            hint="what it says is about its index, its proxy or the network",
        )


def _editable_source() -> Path | None:
    """The folder this package is read from, when it was installed as editable."""
    try:
        text = distribution(_PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    data = json.loads(text) if text else {}
    if not data.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(data["url"]).path))
