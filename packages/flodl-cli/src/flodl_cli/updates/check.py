"""Says at the end of a command that a newer version is there, as the last look at it found.

A command never waits for the network: it reads what is known, and starts a process of its own
that looks again when that is a day old.
"""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flodl_cli import __version__
from flodl_cli.host.system import in_container
from flodl_sys import names as variables

if TYPE_CHECKING:
    from flodl_cli.terminal import Terminal

DAY_S = 24 * 3600.0
CLI = "flodl-cli"
_LOCKED = ("flodl", "flodl-hf")
_OPT_OUT = (
    "fdl looks once a day whether a newer version is published, through your own uv or pip; "
    "FDL_NO_UPDATE_CHECK=1, or update_check.enabled = false in {file}, turns that off"
)


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether anything may be said about updates here, the user's file left aside."""
    off = environ.get(variables.NO_UPDATE_CHECK.name) or environ.get("CI")
    return not off and not in_container()


def installed_versions(directory: str) -> dict[str, str]:
    """Versions of fdl itself and of what the nearest ``uv.lock`` holds of flodl."""
    found = {CLI: __version__}
    here = Path(directory)
    for folder in (here, *here.parents):
        lock = folder / "uv.lock"
        if not lock.is_file():
            continue
        try:
            packages = tomllib.loads(lock.read_text(encoding="utf-8")).get("package", [])
        except (OSError, ValueError):  # uv says what is wrong with it; this is an aside
            return found
        found |= {each["name"]: str(each.get("version")) for each in packages
                  if isinstance(each, dict) and each.get("name") in _LOCKED}  # fmt: skip
        return found
    return found


def nudge(directory: str, terminal: Terminal, *, now: float | None = None) -> None:
    """Note newer versions that are known, and have someone else look when that is long ago."""
    from flodl_cli.updates.settings import change_settings, read_settings, settings_file

    file = settings_file()
    settings = read_settings(file)
    if not settings.enabled:
        return
    for name, version in installed_versions(directory).items():
        latest = settings.latest_known.get(name)
        if latest is not None and is_newer(latest, version):
            terminal.note(f"{name} {latest} is out; here is {version} ({_how(name)})")
    if not settings.first_run_seen:
        terminal.note(_OPT_OUT.format(file=file))
    moment = time.time() if now is None else now
    stale = not 0 <= moment - settings.last_check < DAY_S
    if not stale and settings.first_run_seen:
        return
    try:
        # Written before the look, so that a machine without network looks once a day as well.
        change_settings(file, first_run_seen=True, **({"last_check": moment} if stale else {}))
        if stale:
            _look([CLI, *_LOCKED])
    except OSError:
        return  # an aside must not fail the command it follows


def is_newer(latest: str, version: str) -> bool:
    """Whether ``latest`` comes after ``version``; what is no version comes after nothing."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(latest) > Version(version)
    except InvalidVersion:
        return False


def _how(name: str) -> str:
    return "fdl install" if name == CLI else f"uv lock --upgrade-package {name}"


def _look(names: Sequence[str]) -> None:
    """Start a process that outlives this one and writes what it finds into the file."""
    subprocess.Popen(
        [sys.executable, "-m", "flodl_cli.updates.look", *names],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
