"""Log lines for people: ``flodl.log`` with five levels, and warnings said once.

The framework's own code logs through the standard library's ``flodl.*`` loggers;
:func:`bridge_logging` brings those under the same levels and streams.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from enum import IntEnum
from threading import Lock
from typing import TYPE_CHECKING

from flodl_sys import names

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO


class Verbosity(IntEnum):
    """How much is said; a message is shown when its level is at most the current one."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2
    DEBUG = 3
    TRACE = 4


class _Settings:
    """Current level and prefix; the level is read from the environment on first use."""

    level: int
    prefix = ""

    def __getattr__(self, name: str) -> int:
        # Reached only while `level` is not set: later reads are plain attributes.
        if name != "level":
            raise AttributeError(name)
        self.level = _level_from_environment()
        return self.level


_settings = _Settings()
_seen: set[tuple[str, str]] = set()
_lock = Lock()


def _level_from_environment() -> Verbosity:
    text = names.VERBOSITY.get() or "normal"
    try:
        return parse_verbosity(text)
    except ValueError as error:
        _write(sys.stderr, f"{names.VERBOSITY.name}: {error}; using normal")
        return Verbosity.NORMAL


def parse_verbosity(text: str) -> Verbosity:
    """Return the level that a number ``0``..``4`` or a name stands for, in any case.

    Raises:
        ValueError: The text is neither; the message lists what is.
    """
    word = text.strip().upper()
    if word in Verbosity.__members__:
        return Verbosity[word]
    if word in {str(int(level)) for level in Verbosity}:
        return Verbosity(int(word))
    known = ", ".join(f"{int(level)} or {level.name.lower()}" for level in Verbosity)
    raise ValueError(f"{text!r} is no verbosity; there are {known}")


def set_verbosity(level: Verbosity | int) -> None:
    """Set the level for this process, above whatever the environment says.

    Raises:
        ValueError: ``level`` is not 0 to 4.
    """
    _settings.level = Verbosity(level)
    if _bridge in _bridged_logger().handlers:
        _bridged_logger().setLevel(_lowest_record_level())


def verbosity() -> Verbosity:
    """Return the current level."""
    return Verbosity(_settings.level)


def enabled(level: Verbosity | int) -> bool:
    """Return whether a message of this level is shown."""
    return level <= _settings.level


def set_prefix(prefix: str) -> None:
    """Begin every line with ``[prefix]``, such as ``rank 1``; an empty text ends that."""
    _settings.prefix = f"[{prefix}] " if prefix else ""


def msg(
    text: str | Callable[[], object], *args: object, level: Verbosity | int = Verbosity.NORMAL
) -> None:
    """Show a message: normal and verbose ones on stdout, debug and trace ones on stderr.

    Args:
        text: With ``args`` a ``str.format`` pattern, without them the text itself; or a callable
            that returns it.
        args: Values for the pattern. Callables are called, and anything is formatted, only when
            the message is shown.
        level: Shown when the current level is at least this.
    """
    if level <= _settings.level:
        _write(sys.stdout if level < Verbosity.DEBUG else sys.stderr, _formatted(text, args))


def verbose(text: str | Callable[[], object], *args: object) -> None:
    """Show a message from level verbose on, on stdout."""
    msg(text, *args, level=Verbosity.VERBOSE)


def debug(text: str | Callable[[], object], *args: object) -> None:
    """Show a message from level debug on, on stderr."""
    msg(text, *args, level=Verbosity.DEBUG)


def trace(text: str | Callable[[], object], *args: object) -> None:
    """Show a message at level trace, on stderr."""
    msg(text, *args, level=Verbosity.TRACE)


def error(text: str | Callable[[], object], *args: object) -> None:
    """Show an error on stderr, at every level."""
    _write(sys.stderr, _formatted(text, args))


def _formatted(text: str | Callable[[], object], args: tuple[object, ...]) -> str:
    pattern = str(text() if callable(text) else text)
    if not args:
        return pattern
    return pattern.format(*(value() if callable(value) else value for value in args))


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # no console at all
        return
    lines = "".join(f"{_settings.prefix}{line}\n" for line in text.split("\n"))
    try:
        # One call a message keeps lines of several threads whole; the flush keeps the logs of
        # containers in time.
        stream.write(lines)
        stream.flush()
    except BrokenPipeError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Point a stream whose reader has gone at the null device: the exit flushes it once more."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class _Bridge(logging.Handler):
    """Shows records of the standard library by the rules of this module."""

    def emit(self, record: logging.LogRecord) -> None:
        level = _verbosity_of(record.levelno)
        if level is None:
            error(self.format(record))
        else:
            msg(self.format(record), level=level)


_bridge = _Bridge()
# Between logging's own levels: 15 is verbose, 5 is trace.
_RECORD_LEVELS = ((20, Verbosity.NORMAL), (15, Verbosity.VERBOSE), (10, Verbosity.DEBUG))


def _verbosity_of(record_level: int) -> Verbosity | None:
    """Return the level at which a record is shown, ``None`` when it always is."""
    if record_level >= logging.WARNING:
        return None
    for least, level in _RECORD_LEVELS:
        if record_level >= least:
            return level
    return Verbosity.TRACE


def _lowest_record_level() -> int:
    shown = [least for least, level in _RECORD_LEVELS if enabled(level)]
    return 1 if enabled(Verbosity.TRACE) else min(shown, default=logging.WARNING)


def _bridged_logger() -> logging.Logger:
    return logging.getLogger("flodl")


def bridge_logging(on: bool = True) -> None:
    """Show the records of the standard library's ``flodl.*`` loggers by the levels of this module.

    Warnings and errors are always shown, on stderr; info is normal, 15 verbose, debug debug, and
    what is below trace. The records no longer reach the root logger's handlers. ``on=False``
    puts it back.
    """
    logger = _bridged_logger()
    logger.removeHandler(_bridge)
    logger.propagate = not on
    logger.setLevel(_lowest_record_level() if on else logging.NOTSET)
    if on:
        logger.addHandler(_bridge)


def warn_once(logger: logging.Logger, message: str, *args: object) -> None:
    """Log a warning the first time this process formats it; later calls do nothing.

    Used where a slower or lesser way was taken, which users must know and need not read twice.
    """
    key = (logger.name, message % args if args else message)
    with _lock:
        if key in _seen:
            return
        _seen.add(key)
    logger.warning("%s", key[1])
