"""The exception tree of fdl.

FdlError                      every error fdl raises on purpose        exit code 1
├── UsageError                the command line says something impossible         2
├── ConfigError               one thing is wrong in one place of a manifest      2
├── ConfigErrors              the manifests hold several such errors             2
├── SchemaError               a schema of a program's arguments is impossible    2
├── OverlayError              an overlay that was asked for is not there         2
├── UnsupportedPlatformError  nothing is published for this platform             2
├── LibtorchError             an installed libtorch is not as it should be       1
├── DownloadError             a file could not be fetched                        1
├── ChecksumError             a fetched file is not the one that was published   1
├── BuildError                a libtorch could not be compiled                   1
└── LaunchError               a program could not be started             126 / 127

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


class SchemaError(FdlError):
    """A description of a program's arguments is impossible; the message names the field."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=2)


class OverlayError(FdlError):
    """An overlay was asked for, and no manifest on the way to the root has it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=2)


class UnsupportedPlatformError(FdlError):
    """Nothing is published for this operating system and processor."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=2)


class LibtorchError(FdlError):
    """An installed libtorch, or the record of it, is not as it should be."""


class DownloadError(FdlError):
    """A file could not be fetched.

    Args:
        message: What went wrong.
        url: Address that was asked.
        status: Answer of the server, or ``None`` when there was none.
        hint: What to do about it.
    """

    def __init__(
        self, message: str, *, url: str, status: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.url = url
        self.status = status


class ChecksumError(FdlError):
    """A fetched file is not the one that was published."""


class BuildError(FdlError):
    """A libtorch could not be compiled."""
