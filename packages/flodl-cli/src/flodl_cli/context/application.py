"""What a command may ask about the call it belongs to; built once, at the front door."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from flodl_cli.context.flags import GlobalFlags
from flodl_cli.errors import FdlError
from flodl_cli.terminal import Terminal
from flodl_sys import names as variables

_TRACE = 4


class AppContext(NamedTuple):
    """The global flags of a call, where it was made, and where its words go.

    ``tail`` holds the words after the first ``--``, and is ``None`` when there was none;
    ``overlay`` is the name of the overlay in force.
    """

    flags: GlobalFlags
    directory: str
    environ: Mapping[str, str]
    terminal: Terminal
    tail: tuple[str, ...] | None = None
    overlay: str | None = None


def build_context(flags: GlobalFlags, tail: tuple[str, ...] | None = None) -> AppContext:
    """The context of a call made here and now.

    Raises:
        FdlError: The working directory is gone.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 - pathlib would slow down every help
    except OSError as error:
        raise FdlError(
            f"the working directory cannot be read: {error.strerror}", hint="cd to one that exists"
        ) from error
    terminal = Terminal(color=flags.color, quiet=flags.verbosity == 0)
    return AppContext(flags=flags, directory=here, environ=os.environ, terminal=terminal, tail=tail)


def context_of(given: object) -> AppContext:
    """The front door's context when ``given`` is one; else one of its own, as in a test."""
    return given if isinstance(given, AppContext) else build_context(GlobalFlags())


def wants_traceback(flags: GlobalFlags) -> bool:
    """Whether errors are shown with the way they came."""
    return flags.verbosity == _TRACE or os.environ.get(variables.TRACEBACK.name) == "1"
