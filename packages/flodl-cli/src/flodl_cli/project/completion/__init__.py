"""Completion scripts, and the block in a shell's start-up file that loads one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from flodl_cli.errors import FdlError, UsageError
from flodl_cli.names import SHELLS

_BEGIN, _END = "# >>> fdl >>>", "# <<< fdl <<<"
_LINES = {
    "bash": 'eval "$(fdl completions bash)"',
    "zsh": 'eval "$(fdl completions zsh)"',
    "fish": "fdl completions fish | source",
}


def completion_script(shell: str) -> str:
    """The script that completes fdl in ``shell``."""
    return (files(__package__) / f"fdl.{shell}").read_text(encoding="utf-8")


def detect_shell(environ: Mapping[str, str]) -> str:
    """The user's shell, by ``$SHELL``.

    Raises:
        UsageError: It is none that fdl completes in.
    """
    name = os.path.basename(environ.get("SHELL", ""))  # noqa: PTH119 - a name, not a path
    if name not in _LINES:
        raise UsageError(
            f"$SHELL is {environ.get('SHELL') or 'not set'}; shells with a start-up file that "
            f"fdl knows: {', '.join(_LINES)}",
            hint=f"name one, or put the script in yourself: fdl completions {'|'.join(SHELLS)}",
        )
    return name


def startup_file(shell: str, environ: Mapping[str, str]) -> Path:
    """The file that ``shell`` reads when it starts."""
    home = Path(environ.get("HOME") or Path.home())
    if shell == "zsh":
        return Path(environ.get("ZDOTDIR") or home) / ".zshrc"
    if shell == "fish":
        return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "config.fish"
    return home / ".bashrc"


def install_block(file: Path, shell: str) -> bool:
    """Put the block into ``file``, once; whether anything changed.

    Raises:
        FdlError: The file cannot be read or written.
    """
    before = _read(file)
    rest = _without_block(before)
    block = f"{_BEGIN}\n{_LINES[shell]}\n{_END}\n"
    separator = "" if not rest or rest.endswith("\n") else "\n"
    return _write(file, before, before if block in before else f"{rest}{separator}{block}")


def remove_block(file: Path) -> bool:
    """Take the block out of ``file``; whether anything changed.

    Raises:
        FdlError: The file cannot be read or written.
    """
    before = _read(file)
    return _write(file, before, _without_block(before))


def _without_block(text: str) -> str:
    start, end = text.find(_BEGIN), text.find(_END)
    if start < 0 or end < start:
        return text
    return text[:start] + text[end + len(_END) :].removeprefix("\n")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise FdlError(f"{file} cannot be read: {error}") from error


def _write(file: Path, before: str, after: str) -> bool:
    if after == before:
        return False
    target = file.resolve()  # a start-up file is often a link into a repository
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(after, encoding="utf-8")
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FdlError(f"{file} cannot be written: {error.strerror}") from error
    return True
