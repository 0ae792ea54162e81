"""One run's board with everything that reads it: the portal, the log, the sinks, the saved page."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.core.errors import ConfigError, FlodlError
from flodl.core.log import warn_once
from flodl.core.paths import ROOT
from flodl.monitor.commands import Command, apply_command
from flodl.monitor.errors import MissingExtraError, MonitorExportError
from flodl.monitor.files import write_file
from flodl.monitor.place import ServePlace
from flodl.monitor.repeater import Repeater
from flodl.monitor.saved_page import SavedPage
from flodl.monitor.sink_runner import SinkRunner
from flodl.records.board import RunBoard
from flodl.records.journal import RecordLog
from flodl.records.record import RunStatus, Sink
from flodl.web.archive import portal_file
from flodl.web.errors import DashboardAlreadyServing

if TYPE_CHECKING:
    import socket

    from flodl.monitor.serving import Portal
    from flodl.monitor.timeline import Timeline
    from flodl.web.extension import Extension

_TICK_S = 1.0
_logger = logging.getLogger(__name__)


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
        self.timeline: Timeline | None = None
        """Where events of the run go, ``None`` where nobody keeps them."""
        self._on_tick = on_tick
        self._clock = clock
        self._portal: Portal | None = None
        self._log: RecordLog | None = None
        self._sinks: SinkRunner | None = None
        self._pages: list[SavedPage] = []
        self._saved_at: dict[Path, float] = {}
        self._leave: dict[str, Callable[[], None]] = {}
        self._is_finished = False
        self._finishing = threading.RLock()
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

    def serve(
        self,
        place: ServePlace,
        extension: Extension | None = None,
        listener: socket.socket | None = None,
    ) -> Portal:
        """Serve the portal; the same place again is no change.

        Args:
            place: Where.
            extension: More routes on its port.
            listener: A socket that listens there already; the portal closes it.

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

            self._portal = open_portal(self.board, place, extension, listener)
            self.start()
        elif place.port not in {0, self._portal.port}:
            raise DashboardAlreadyServing(
                f"serve(port={place.port}): the portal is served on port {self._portal.port}",
                hint=f"open {self._portal.url}",
            )
        return self._portal

    def release(self) -> ServePlace | None:
        """Stop serving, and return where; another process can listen there then.

        ``None`` where nothing was served.
        """
        portal, self._portal = self._portal, None
        if portal is None:
            return None
        portal.stop()
        return replace(portal.place, port=portal.port)

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
        self._leave["log"] = self.board.tree.listen(log.offer)
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
            self._leave["sinks"] = self.board.tree.listen(runner.offer)
            self.board.count_losses("sinks", lambda: runner.dropped)
            self.start()

    def hand_over(self) -> None:
        """End what reads the board here, because another process goes on with all of it.

        Sinks that no record has reached yet are never opened, pages are not saved.
        """
        self.release()
        self._pages.clear()
        sinks, self._sinks = self._sinks, None
        log, self._log = self._log, None
        for leave in self._leave.values():
            leave()
        self._leave.clear()
        if sinks is not None:
            sinks.close("done")
        if log is not None:
            log.close()

    def apply(self, command: Command) -> None:
        """Do what the monitor of another process was told, as it has sent it.

        Raises:
            ConfigError: There is no such operation, or its values are refused.
        """
        apply_command(self, command)

    def add_timeline(self, timeline: Timeline, devices: Sequence[int] | None = None) -> None:
        """Start a timeline if it does not run, show it, and end it with the run.

        Args:
            timeline: The timeline.
            devices: Physical indices of the GPUs of ranks that are directed here.

        Raises:
            ConfigError: There is one already.
        """
        if self.timeline is not None and self.timeline is not timeline:
            raise ConfigError("a run has one timeline, and this one has it already")
        self.timeline = timeline
        timeline.start(devices=devices)
        self.board.add_timeline(timeline.host, timeline)

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

        Idempotent; a call while another thread is at it waits until that is done. What cannot be
        written is told, and does not keep the rest from ending.

        Args:
            status: How the run ended.
            linger: Seconds that the portal stays open.
        """
        with self._finishing:
            if not self._is_finished:
                self._is_finished = True
                self._finish(status, linger)

    def _finish(self, status: RunStatus, linger: float) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        if self.timeline is not None:
            self.timeline.stop()
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
