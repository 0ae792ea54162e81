"""One run's board with everything that reads it: the portal, the log, the sinks, the saved page."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.core.errors import ConfigError, FlodlError
from flodl.core.log import warn_once
from flodl.core.paths import ROOT
from flodl.monitor.errors import MissingExtraError, MonitorExportError
from flodl.monitor.files import write_file
from flodl.monitor.place import ServePlace
from flodl.monitor.repeater import Repeater
from flodl.monitor.sink_runner import SinkRunner
from flodl.records.board import RunBoard
from flodl.records.journal import RecordLog
from flodl.records.record import RunStatus, Sink
from flodl.web.archive import MAX_BYTES, Theme, portal_file
from flodl.web.errors import DashboardAlreadyServing

if TYPE_CHECKING:
    from flodl.monitor.serving import Portal

THEMES: tuple[Theme, ...] = ("auto", "light", "dark")
_TICK_S = 1.0
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedPage:
    """The portal as a file.

    Raises:
        ConfigError: The theme is none, or the interval is not positive.
    """

    path: Path
    theme: Theme = "auto"
    max_bytes: int = MAX_BYTES
    every: float | None = None
    """Seconds between saves while the run goes on; ``None`` saves at its end alone."""

    def __post_init__(self) -> None:
        if self.theme not in THEMES:
            raise ConfigError(
                f"theme={self.theme!r}: must be one of {', '.join(map(repr, THEMES))}"
            )
        if self.every is not None and not self.every > 0:
            raise ConfigError(f"every={self.every}: must be a positive number of seconds, or None")


class RunPlane:
    """Owns what reads a board, and ends it in the right order.

    In a single process the monitor has one; in a managed run the controller does.

    Args:
        board: The run.
        clock: Monotonic seconds; for tests.
        on_tick: Called about once a second.
    """

    def __init__(
        self,
        board: RunBoard,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_tick: Callable[[], object] | None = None,
    ) -> None:
        self.board = board
        self._on_tick = on_tick
        self._clock = clock
        self._portal: Portal | None = None
        self._log: RecordLog | None = None
        self._sinks: SinkRunner | None = None
        self._pages: list[SavedPage] = []
        self._saved_at: dict[Path, float] = {}
        self._is_finished = False
        self._ticker: Repeater | None = None

    @property
    def portal(self) -> Portal | None:
        """The served portal, ``None`` where none is."""
        return self._portal

    @property
    def pages(self) -> Sequence[SavedPage]:
        """The files the portal is saved to."""
        return tuple(self._pages)

    def start(self) -> None:
        """Begin to look after alerts and saved pages in the background. Idempotent."""
        if self._ticker is None and not self._is_finished:
            self._ticker = Repeater(self.tick, _TICK_S, "flodl-monitor")

    def serve(self, place: ServePlace) -> Portal:
        """Serve the portal; the same place again is no change.

        Raises:
            DashboardAlreadyServing: It is served on another port.
            DashboardBindError: It cannot listen there.
            MissingExtraError: The server's libraries are not installed.
        """
        if self._portal is None:
            try:
                from flodl.monitor.serving import open_portal
            except ImportError as error:
                raise MissingExtraError("serve()", extra="monitor") from error

            self._portal = open_portal(self.board, place)
            self.start()
        elif place.port not in {0, self._portal.port}:
            raise DashboardAlreadyServing(
                f"serve(port={place.port}): the portal is served on port {self._portal.port}",
                hint=f"open {self._portal.url}",
            )
        return self._portal

    def open_log(self, folder: str | Path, max_bytes: int = 0) -> RecordLog:
        """Write every record to a tree of files.

        Raises:
            ConfigError: ``max_bytes`` is out of range, or a log is open already.
            RecordLogError: The folder cannot be written.
        """
        if self._log is not None:
            raise ConfigError(f"record_log({str(folder)!r}): {self._log.folder} is open already")
        self._log = RecordLog(folder, max_bytes, on_error=self._io_alert)
        log = self._log
        self.board.tree.listen(log.offer)
        self.board.count_losses("record_log", lambda: log.dropped)
        self.start()
        meta = self.board.tree.meta
        if meta is not None:
            self._log.offer([meta])
        return self._log

    def add_sinks(self, sinks: Sequence[Sink]) -> None:
        """Send every record to these sinks as well.

        Raises:
            ConfigError: Sinks were added before.
        """
        if self._sinks is not None:
            raise ConfigError("sinks were added already; give all of them at once")
        if sinks:
            runner = SinkRunner(sinks, self._facts, lambda text: self._io_alert(ROOT, text))
            self._sinks = runner
            self.board.tree.listen(runner.offer)
            self.board.count_losses("sinks", lambda: runner.dropped)
            self.start()

    def save_page(self, page: SavedPage) -> None:
        """Save the portal to this file at the end, and at intervals if the page says so."""
        self._pages = [held for held in self._pages if held.path != page.path] + [page]
        self._saved_at[page.path] = self._clock()
        self.start()

    def save_now(self, page: SavedPage) -> Path:
        """Save the portal to a file at once.

        Raises:
            MonitorExportError: It cannot be written.
        """
        try:
            content = portal_file(self.board, theme=page.theme, max_bytes=page.max_bytes)
        except KeyError as error:
            raise MonitorExportError(
                f"this installation has no {error} to make a page of"
            ) from error
        return write_file(page.path, content)

    def tick(self) -> None:
        """Do what is due: alerts that were held back, pages that are saved at intervals."""
        self.board.tree.tick()
        if self._on_tick is not None:
            self._on_tick()
        for page in self._pages:
            if page.every is not None and self._clock() - self._saved_at[page.path] >= page.every:
                self._saved_at[page.path] = self._clock()
                self._save_quietly(page)

    def finish(self, status: RunStatus, *, linger: float = 0.0) -> None:
        """End the run: tell the viewers, save the pages, close log and sinks, free the port.

        Idempotent. What cannot be written is told, and does not keep the rest from ending.

        Args:
            status: How the run ended.
            linger: Seconds that the portal stays open.
        """
        if self._is_finished:
            return
        self._is_finished = True
        if self._ticker is not None:
            self._ticker.stop()
        tree = self.board.tree
        tree.watch_stalls(on=False)
        tree.flush_alerts()
        archive = str(self._pages[0].path) if self._pages else None
        self.board.finish(status, archive=archive)
        for page in self._pages:
            self._save_quietly(page)
        if self._log is not None:
            self._log.close()
        if self._sinks is not None:
            self._sinks.close(status)
        if self._portal is not None:
            self._portal.stop(linger=linger)

    def save_pages(self) -> None:
        """Save all pages at once; for a process that is about to be ended."""
        for page in self._pages:
            self._save_quietly(page)

    def _save_quietly(self, page: SavedPage) -> None:
        try:
            self.save_now(page)
        except FlodlError as error:
            warn_once(_logger, "the page was not saved: %s", error)
            self._io_alert(ROOT, f"the page was not saved: {error.message}")

    def _io_alert(self, path: str, text: str) -> None:
        self.board.tree.alert("io", path, text)

    def _facts(self) -> dict[str, object]:
        return {**self.board.tree.run, "metadata": self.board.metadata}
