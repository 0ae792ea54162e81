"""The exception tree of fdl.

FdlError            every error fdl raises on purpose          exit code 1
├── UsageError      the command line says something impossible             2
├── ConfigError     one thing is wrong in one place of a manifest          2
├── ConfigErrors    the manifests hold several such errors                 2
└── LaunchError     a program could not be started                 126 / 127

A message says what was asked and what is true instead; the hint says what to do.
``flodl_cli.terminal`` is the one place that prints them.
"""

from __future__ import annotations

from collections.abc import Sequence


class FdlError(Exception):
    """Base of every error that fdl raises on purpose.

    Args:
        message: What was asked and what is true instead.
        hint: What to do about it, or ``None`` when the message already says so.
        exit_code: Code that the process ends with.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class UsageError(FdlError):
    """The command line asks for something that does not exist or contradicts itself."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=2)


class ConfigError(FdlError):
    """One thing is wrong in one place of a manifest.

    Args:
        message: What stands there and what may stand there.
        file: Absolute path of the manifest.
        line: Line in that file, counted from 1, or ``None`` when no single line is at fault.
        key_path: Keys down to the place, such as ``commands.test.run``; empty for the whole file.
        hint: What to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int | None = None,
        key_path: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, exit_code=2)
        self.file = file
        self.line = line
        self.key_path = key_path


class ConfigErrors(FdlError):
    """The manifests hold at least one error; ``errors`` lists all of them."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__("; ".join(error.message for error in errors), exit_code=2)
        self.errors = tuple(errors)


class LaunchError(FdlError):
    """A program could not be started: 126 when it is not executable, 127 when it is not there."""
