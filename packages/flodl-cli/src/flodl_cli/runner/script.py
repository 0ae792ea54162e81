"""Run commands: the shell line that a ``run:``, its ``append:`` and the user's words make."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from flodl_cli.config.tree import RunCommand


def compose(command: RunCommand, tail: Sequence[str], *, append: bool = True) -> str:
    """The line for the shell.

    ``tail`` is what the user wrote after the first ``--``. What ``append`` and the user put
    before a ``--`` of their own comes before the separator, what they put after it comes after:
    ``run append_pre user_pre [-- append_post user_post]``.
    """
    append_pre, append_post = _split_line(command.append or "" if append else "")
    user = list(tail)
    cut = user.index("--") if "--" in user else len(user)
    user_pre, user_post = shlex.join(user[:cut]), shlex.join(user[cut + 1 :])
    before = [command.run, append_pre or "", user_pre]
    after = [append_post or "", user_post]
    separator = ["--"] if append_post is not None or any(after) else []
    return " ".join(part for part in (*before, *separator, *after) if part)


def _split_line(line: str) -> tuple[str, str | None]:
    """The line before and after its first standalone ``--`` outside quotes; no ``--``: ``None``."""
    quote = ""
    starts_word = True
    position = 0
    while position < len(line):
        char = line[position]
        if not quote and starts_word and line[position:].split(maxsplit=1)[:1] == ["--"]:
            return line[:position].strip(), line[position + 2 :].strip()
        starts_word = not quote and char.isspace()
        if char == "\\" and quote != "'":
            position += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        position += 1
    return line.strip(), None
