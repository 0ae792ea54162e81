"""Path and preset commands: the argument list that an ``entry`` is run with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from flodl_cli.config.tree import Program
from flodl_cli.errors import UsageError


def compose(program: Program, words: Sequence[str]) -> list[str]:
    """Entry, flags from the settings, pinned arguments, then the user's words, which win.

    Raises:
        UsageError: The entry cannot be split into words.
    """
    try:
        entry = shlex.split(program.entry)
    except ValueError as error:
        raise UsageError(
            f"entry {program.entry!r} cannot be split into words: {error}",
            hint="close its quotes",
        ) from error
    if not entry:
        raise UsageError(f"entry {program.entry!r} names no program")
    return [*entry, *program.flags, *program.args, *words]
