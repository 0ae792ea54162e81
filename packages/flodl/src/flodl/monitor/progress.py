"""How a run's lines reach the console: plainly, or under a live bar."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Literal, Protocol, TextIO

from flodl.core.errors import ConfigError
from flodl.monitor.errors import MissingExtraError

ProgressMode = Literal["plain", "rich", "tqdm", "none"]
MODES: tuple[ProgressMode, ...] = ("plain", "rich", "tqdm", "none")


class ProgressOutput(Protocol):
    """Where lines and progress go."""

    def line(self, text: str) -> None:
        """Show one line for good."""

    def advance(self, epochs: float) -> None:
        """Show that so many epochs are done, parts of them included."""

    def close(self) -> None:
        """End the bar, if there is one."""


def progress_output(mode: str, total: int, stream: TextIO | None) -> ProgressOutput:
    """Return the output of a mode; a bar needs a terminal, elsewhere lines are plain.

    Args:
        mode: ``plain``, ``rich``, ``tqdm`` or ``none``.
        total: Epochs of the run.
        stream: Where lines go; ``None`` means standard error at the time of printing.

    Raises:
        ConfigError: There is no such mode.
        MissingExtraError: The bar's library is not installed.
    """
    if mode not in MODES:
        raise ConfigError(f"progress={mode!r}: must be one of {', '.join(map(repr, MODES))}")
    if mode == "none":
        return Silence()
    if mode == "plain":
        return PlainLines(stream)
    library = _library(mode)
    if not (stream or sys.stderr).isatty():
        return PlainLines(stream)
    bar: type[RichBar | TqdmBar] = RichBar if mode == "rich" else TqdmBar
    return bar(library, total, stream)


class Silence:
    """Shows nothing."""

    def line(self, text: str) -> None:
        """Show nothing."""

    def advance(self, epochs: float) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainLines:
    """One printed line each; no bar."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def line(self, text: str) -> None:
        """Print a line."""
        print(text, file=self._stream or sys.stderr, flush=True)

    def advance(self, epochs: float) -> None:
        """Show nothing: a line tells."""

    def close(self) -> None:
        """Do nothing."""


class TqdmBar:
    """Lines above a bar of ``tqdm``."""

    def __init__(self, library: Any, total: int, stream: TextIO | None) -> None:
        # its watching thread is for loops that stall, and would outlive the run
        bar_type = type("_Bar", (library.tqdm,), {"monitor_interval": 0})
        shape = "  {percentage:3.0f}%|{bar}| {n:.1f}/{total_fmt} epochs [{elapsed}<{remaining}]"
        self._stream = stream or sys.stderr
        self._bar = bar_type(total=total, file=self._stream, leave=False, bar_format=shape)

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.write(text, file=self._stream)

    def advance(self, epochs: float) -> None:
        """Move the bar."""
        self._bar.total = max(self._bar.total, epochs)
        self._bar.n = epochs
        self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class RichBar:
    """Lines above a bar of ``rich``."""

    def __init__(self, library: Any, total: int, stream: TextIO | None) -> None:
        console = importlib.import_module("rich.console").Console(file=stream)
        self._progress = library.Progress(console=console, auto_refresh=False, transient=True)
        self._task = self._progress.add_task("epochs", total=total)
        self._total = float(total)
        self._progress.start()

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def advance(self, epochs: float) -> None:
        """Move the bar."""
        self._total = max(self._total, epochs)
        self._progress.update(self._task, completed=epochs, total=self._total)
        self._progress.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()


def _library(mode: str) -> Any:
    name = "rich.progress" if mode == "rich" else "tqdm"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"progress={mode!r}", extra=mode) from error
