"""The one place that prints: data to stdout, talk to stderr, color and width decided here."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from flodl_cli.errors import ConfigError, ConfigErrors, FdlError
from flodl_sys import names as variables

_BOLD, _DIM, _RED, _CYAN = "1", "2", "31", "36"
_WIDTH_WITHOUT_TERMINAL = 100
_NARROWEST, _WIDEST = 60, 120
_WIDEST_NAME = 26


class Paint:
    """Adds color to text, or does not.

    Args:
        on: Whether to add it.
    """

    def __init__(self, *, on: bool) -> None:
        self.on = on

    def heading(self, text: str) -> str:
        """Text that opens a section."""
        return self._wrap(text, _BOLD)

    def name(self, text: str) -> str:
        """Something the user may type."""
        return self._wrap(text, _CYAN)

    def aside(self, text: str) -> str:
        """Something to read second."""
        return self._wrap(text, _DIM)

    def alarm(self, text: str) -> str:
        """Something that went wrong."""
        return self._wrap(text, f"{_BOLD};{_RED}")

    def _wrap(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text


class Terminal:
    """Where fdl's own words go.

    Args:
        color: ``True`` or ``False`` when a flag says so, else ``None``: the environment and the
            kind of stream decide.
        quiet: Leave out notes.
        environ: Variables to decide by; those of the process when not given.
    """

    def __init__(
        self,
        *,
        color: bool | None = None,
        quiet: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._color = color
        self._quiet = quiet
        self._open_status = False
        self.width = terminal_width(self._environ)

    @property
    def paint(self) -> Paint:
        """Paint for text that goes to stdout."""
        return self._paint(sys.stdout)

    def print(self, text: str) -> None:
        """Write data to stdout.

        Raises:
            BrokenPipeError: The reader has gone.
            FdlError: It cannot be written.
        """
        try:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            sys.stdout.flush()
        except OSError as error:
            _discard_stdout()
            if isinstance(error, BrokenPipeError):
                raise
            raise FdlError(f"standard output cannot be written: {error.strerror}") from error

    def report(self, text: str, *, indent: int) -> None:
        """Write lines to stdout; on a terminal what does not fit goes on below, ``indent`` in."""
        if sys.stdout.isatty():  # paths and messages stay whole for programs
            text = "\n".join(hanging(text, self.width, indent=indent))
        self.print(text)

    def note(self, text: str) -> None:
        """Write one remark to stderr, unless quiet."""
        if not self._quiet:
            self._talk("note:", text, self._paint(sys.stderr).aside)

    def say(self, text: str) -> None:
        """Write one line about what is going on to stderr, unless quiet."""
        if not self._quiet:
            self._end_status()
            if sys.stderr.isatty():
                text = "\n".join(hanging(text, self.width, indent=2))
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def status(self, text: str, *, settled: bool) -> None:
        """Show how far something is: in place on a terminal, else only when ``settled``."""
        if self._quiet:
            return
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[2K{text[: self.width - 1]}")
            self._open_status = True
        elif settled:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    @property
    def is_interactive(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str, *, default: bool) -> bool:
        """Ask a yes-or-no question; without a terminal the answer is ``default``."""
        answer = self.ask(f"{question} [{'Y/n' if default else 'y/N'}]").lower()
        return answer.startswith("y") if answer else default

    def ask(self, question: str) -> str:
        """Ask for one line; without a terminal, or at its end, the answer is empty."""
        if not self.is_interactive:
            return ""
        self._end_status()
        sys.stderr.write(f"{question} ")
        sys.stderr.flush()
        return sys.stdin.readline().strip()

    def error(self, error: FdlError, *, trace: bool = False) -> None:
        """Write an error and what to do about it to stderr; with ``trace`` where it came from."""
        if trace:
            import traceback

            traceback.print_exception(error, file=sys.stderr)
        paint = self._paint(sys.stderr)
        for each in error.errors if isinstance(error, ConfigErrors) else (error,):
            self._talk("error:", describe(each), paint.alarm)
            if each.hint is not None:
                self._talk("hint:", each.hint, paint.aside)

    def _end_status(self) -> None:
        if self._open_status:
            sys.stderr.write("\n")
            self._open_status = False

    def _talk(self, label: str, text: str, paint: Callable[[str], str]) -> None:
        self._end_status()
        if sys.stderr.isatty():  # a file or a program gets the lines of a remark as they are
            lines = hanging(f"{label} {text}", self.width, indent=2)
            text = "\n".join(lines)[len(label) + 1 :]
        sys.stderr.write(f"{paint(label)} {text}\n")
        sys.stderr.flush()

    def _paint(self, stream: TextIO) -> Paint:
        return Paint(on=wants_color(stream, self._color, self._environ))


def _discard_stdout() -> None:
    """Send what is still buffered nowhere, so that it does not fail again when Python ends."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe(error: FdlError) -> str:
    """The message of an error, led by file, line and key path where it has them."""
    if not isinstance(error, ConfigError):
        return error.message
    place = shown_path(error.file) + (f":{error.line}" if error.line is not None else "")
    return ": ".join(part for part in (place, error.key_path, error.message) if part)


def shown_path(path: str) -> str:
    """The path as a person would write it: relative below the working directory, else absolute."""
    here = os.getcwd().rstrip("/")  # noqa: PTH109 - pathlib would slow down every help
    return path.removeprefix(f"{here}/")


def wants_color(stream: TextIO, flag: bool | None, environ: Mapping[str, str]) -> bool:
    """Whether text for ``stream`` is colored: flag, then variables, then the kind of stream."""
    if flag is not None:
        return flag
    asked = environ.get(variables.COLOR.name, "auto").lower()
    if asked in ("always", "never"):
        return asked == "always"
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or stream.isatty()


def terminal_width(environ: Mapping[str, str]) -> int:
    """Columns to write in: ``COLUMNS``, the terminal's, or 100, kept between 60 and 120."""
    wanted = environ.get("COLUMNS", "")
    columns = int(wanted) if wanted.isdecimal() else 0
    if columns == 0:
        columns = _columns_of(sys.__stdout__) or _columns_of(sys.__stderr__)
    return min(max(columns or _WIDTH_WITHOUT_TERMINAL, _NARROWEST), _WIDEST)


def _columns_of(stream: TextIO | None) -> int:
    """Columns of the terminal behind ``stream``; 0 when there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
    except (OSError, ValueError):
        return 0


def columns(rows: Sequence[tuple[str, str]], *, width: int, paint: Paint) -> list[str]:
    """Two columns, names and what they mean, the second one wrapped to ``width``."""
    fitting = [len(name) for name, _ in rows if len(name) <= _WIDEST_NAME]
    indent = 2 + max(fitting, default=0) + 2
    lines: list[str] = []
    for name, text in rows:
        wrapped = wrap(text, width - indent) or [""]
        first = paint.name(name) + " " * (indent - 2 - len(name))
        if len(name) > _WIDEST_NAME:
            lines.append(f"  {paint.name(name)}")
            first = " " * (indent - 2)
        lines.append(f"  {first}{wrapped[0]}".rstrip())
        lines.extend(" " * indent + more for more in wrapped[1:])
    return lines


def wrap(text: str, width: int) -> list[str]:
    """The words of ``text`` in lines of at most ``width``; a longer word has its own line."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split():
            if line and len(line) + 1 + len(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        lines.append(line)
    return lines


def hanging(text: str, width: int, *, indent: int = 0) -> list[str]:
    """The lines of ``text``: what is wider than ``width`` goes on below, ``indent`` further in."""
    lines: list[str] = []
    for line in text.splitlines():
        rest, margin = line, len(line) - len(line.lstrip())
        while len(rest) > width:
            cut = rest.rfind(" ", margin, width + 1)
            if cut < margin:  # a word wider than all: it has its own line
                cut = rest.find(" ", width)
            if cut < 0:
                break
            lines.append(rest[:cut].rstrip())
            margin = len(line) - len(line.lstrip()) + indent
            rest = " " * margin + rest[cut:].lstrip()
        lines.append(rest)
    return lines


def listed(words: Iterable[str]) -> str:
    """Words in a row, or ``none``."""
    return ", ".join(words) or "none"
