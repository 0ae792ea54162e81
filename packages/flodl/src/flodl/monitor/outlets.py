"""Where a run can be looked at: the half of the monitor that shows, apart from what is shown."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.core.log import warn_once
from flodl.monitor.commands import Command, SendFn, apply_command
from flodl.monitor.errors import MonitorFinished
from flodl.monitor.picture import ProfiledModel, Watchable, json_metadata, parameter_counts
from flodl.monitor.place import ServePlace, announcement, serve_place, shown_host
from flodl.monitor.plane import RunPlane
from flodl.monitor.saved_page import SavedPage
from flodl.monitor.speaker import Speaker
from flodl.monitor.termination import TerminationGuard
from flodl.records.board import RunBoard
from flodl.records.record import Sink
from flodl.records.rollup import Reduction
from flodl.web.archive import MAX_BYTES, Theme

if TYPE_CHECKING:
    from flodl.monitor.timeline import Timeline

_logger = logging.getLogger(__name__)


class MonitorOutlets(ABC):
    """The base of ``Monitor``: portal, model, settings and files of a run.

    What is set goes to the plane of this process, or, once a run over several processes has
    taken over, to the process that directs it.

    Args:
        plane: What reads the board in this process.
        speaker: Where lines go.
        sinks: Where records go as well.
        name: Title of the run.
        is_primary: Whether this is the process that people watch; others show nothing.
    """

    def __init__(
        self,
        plane: RunPlane,
        speaker: Speaker,
        sinks: Sequence[Sink],
        *,
        name: str | None,
        is_primary: bool,
    ) -> None:
        self._plane = plane
        self._speaker = speaker
        self._is_primary = is_primary
        self._is_finished = False
        self._user_metadata: dict[str, Any] = {}
        self._model_metadata: dict[str, Any] = {}
        self._said: dict[tuple[str, object], Command] = {}
        self._send: SendFn | None = None
        self._url: str | None = None
        self.name = name
        self.sinks = tuple(sinks)
        """The sinks it was given."""
        self._guard = TerminationGuard(self._abort)
        if is_primary:
            plane.add_sinks(sinks)

    @property
    def board(self) -> RunBoard:
        """What viewers of the run see."""
        return self._plane.board

    @property
    def plane(self) -> RunPlane:
        """What reads the board: portal, record log, sinks, saved pages."""
        return self._plane

    # ------------------------------------------------------------ the portal

    def serve(
        self,
        port: int = 3000,
        *,
        host: str | None = None,
        token: str | None = None,
        allowed_hosts: Sequence[str] = (),
        isolate: bool = False,
    ) -> str:
        """Serve the live portal, and return its address.

        It listens on this machine alone unless told otherwise. Where others reach it, viewers
        must know a token, which is made up and printed if none is given. A rank of a run over
        several processes serves nothing: its launcher does.

        Args:
            port: 0 picks a free one.
            host: Address to listen on; ``None`` for ``FLODL_DASHBOARD_BIND``, or loopback.
            token: What viewers must know; ``None`` for ``FLODL_DASHBOARD_TOKEN``.
            allowed_hosts: More names that the server may be called by.
            isolate: Serve from a process of its own instead of a thread.

        Raises:
            DashboardAlreadyServing: It is served on another port.
            DashboardBindError: It cannot listen there.
            MonitorFinished: The monitor has finished.
        """
        self._check_running("serve()")
        place = serve_place(
            port, host=host, token=token, allowed_hosts=allowed_hosts, isolate=isolate
        )
        if not self._is_primary:
            return f"http://{shown_host(place)}:{place.port}"
        if self._send is not None:
            return self._url_of_run(place)
        is_new = self._plane.portal is None
        portal = self._plane.serve(place)
        if is_new:
            for line in announcement(place, portal.port):
                self._speaker.line(line)
        return portal.url

    def release(self) -> ServePlace | None:
        """Stop serving, so that another process can go on at the same place, and return it.

        ``None`` where nothing was served.
        """
        return self._plane.release()

    def delegate(self, send: SendFn, *, url: str | None = None) -> None:
        """Leave the showing to the process that directs the run's ranks.

        Everything that was set so far is sent to it, and what is set from now on. This monitor
        goes on to print lines, keeps its history, and feeds no sinks.

        Args:
            send: Takes what is to be done there, as plain values for ``RunPlane.apply``.
            url: Where the run is served from now on.
        """
        self._plane.hand_over()
        self._send, self._url = send, url
        if self.name is not None:
            send({"op": "identity", "label": self.name, "hash": None})
        for command in self._said.values():
            send(command)

    def _url_of_run(self, place: ServePlace) -> str:
        served = self._url or ""
        if place.port and not served.endswith(f":{place.port}"):
            warn_once(
                _logger,
                "serve(port=%d): the run is served at %s, and stays there",
                place.port,
                served or "no address",
            )
        return served

    # ------------------------------------------------------------ the model and the settings

    def watch(self, graph: Watchable) -> None:
        """Show a graph's picture, identity and parameter counts."""
        self.set_svg(graph.svg())
        self._identify(graph)

    def watch_profiled(self, graph: ProfiledModel) -> None:
        """Show a graph's picture colored by what its nodes cost, its identity and counts."""
        self.set_svg(graph.svg_with_profile())
        self._identify(graph)

    def set_svg(self, svg: str) -> None:
        """Show this picture of the model; whatever could act in it is dropped.

        Raises:
            SvgError: It is no SVG picture.
        """
        self._do({"op": "svg", "svg": svg})

    def set_identity(self, label: str | None, hash: str | None) -> None:  # noqa: A002 (its name)
        """Show this label and structural hash of the model."""
        self._do({"op": "identity", "label": label, "hash": hash})

    def set_metadata(self, meta: Mapping[str, Any]) -> None:
        """Show these settings of the run; they win over what a watched graph says of itself."""
        self._user_metadata = json_metadata(meta)
        self._show_metadata()

    def set_model_metadata(self, meta: Mapping[str, Any]) -> None:
        """Show these settings beside those of :meth:`set_metadata`, which win."""
        self._model_metadata = json_metadata(meta)
        self._show_metadata()

    def scalar_reduction(self, key: str, reduction: Reduction) -> None:
        """Say how a scalar of yours rolls up over ranks; the mean unless said otherwise.

        Raises:
            ReductionConflict: The key's reduction is fixed.
            ConfigError: There is no such reduction.
        """
        self._do({"op": "reduction", "key": key, "reduction": str(reduction)}, key)

    # ------------------------------------------------------------ files

    def save_html(
        self,
        path: str | Path,
        *,
        theme: Theme = "auto",
        max_bytes: int = MAX_BYTES,
        every: float | None = None,
    ) -> None:
        """Save the whole portal as one offline file when the run ends, however it ends.

        Args:
            path: The file.
            theme: Look that is pinned in it, or ``"auto"``.
            max_bytes: Its size at most; a longer run gets coarser.
            every: Also save it every so many seconds.

        Raises:
            ConfigError: There is no such theme, or ``every`` is not positive.
        """
        page = SavedPage(path=Path(path), theme=theme, max_bytes=max_bytes, every=every)
        whole = os.path.abspath(page.path)  # noqa: PTH100 (links stay as they were written)
        command = {"path": whole, "theme": theme, "max_bytes": max_bytes, "every": every}
        self._do({"op": "save_page", **command}, whole)
        if self._is_primary:
            self._guard.watch_signal()

    def save_now(self, path: str | Path) -> Path:
        """Save the whole portal as one offline file at once.

        Raises:
            MonitorExportError: It cannot be written.
        """
        if not self._is_primary:
            return Path(path)
        return self._plane.save_now(SavedPage(path=Path(path)))

    def record_log(self, folder: str | Path, max_bytes: int = 0) -> None:
        """Write every record to a tree of JSON-lines files, whose paths are the record paths.

        Args:
            folder: Where the tree begins.
            max_bytes: Cap per node; 0 means 32 MiB.

        Raises:
            ConfigError: ``max_bytes`` is out of range, or a log is open already.
            RecordLogError: The folder cannot be written.
        """
        whole = os.path.abspath(folder)  # noqa: PTH100 (links stay as they were written)
        self._do({"op": "record_log", "folder": whole, "max_bytes": max_bytes}, whole)

    def timeline(self, timeline: Timeline) -> None:
        """Start a timeline, show it beside the records, mark epochs on it, end it with the run.

        Raises:
            ConfigError: The run has another one already.
        """
        if self._is_primary:
            self._plane.add_timeline(timeline)

    # ------------------------------------------------------------ inside

    def _do(self, command: Command, about: object = None) -> None:
        """Carry out a command where the run is shown, and remember it for whoever takes over."""
        if not self._is_primary:
            return
        if self._send is not None:
            self._send(command)
            return
        apply_command(self._plane, command)
        self._said[command["op"], about] = command

    def _check_running(self, what: str) -> None:
        if self._is_finished:
            raise MonitorFinished(f"Monitor.{what}: the monitor has finished")

    def _identify(self, graph: Watchable) -> None:
        self.set_identity(graph.label, graph.structural_hash)
        self.set_model_metadata({"parameters": parameter_counts(graph)})

    def _show_metadata(self) -> None:
        shown = {**self._model_metadata, **self._user_metadata}
        self._do({"op": "metadata", "metadata": shown})

    @abstractmethod
    def _abort(self) -> None:
        """End the run because its process ends."""
