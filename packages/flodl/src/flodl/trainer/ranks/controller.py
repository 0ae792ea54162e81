"""What ``run()`` does in the controller: decide for all ranks, and show how the run goes."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.core.paths import RecordTier
from flodl.distributed.averaging.durable import run_prefix
from flodl.distributed.cluster.role import RunPlace
from flodl.distributed.collective.segments import remove_kept
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.settings import RunSettings
from flodl.distributed.launch.child import controller_process
from flodl.monitor.errors import MonitorExportError
from flodl.monitor.place import ServePlace
from flodl.monitor.plane import RunPlane
from flodl.monitor.termination import TerminationGuard
from flodl.records.board import RunBoard
from flodl.records.feed import RankFeed
from flodl.trainer.portrait import Portrait
from flodl.trainer.ranks.audience import RunAudience
from flodl.trainer.ranks.chronicle import Chronicle
from flodl.trainer.ranks.introduction import settings_shown
from flodl.trainer.ranks.kept import KeptSaver
from flodl.trainer.ranks.offer import RunOffer, timeline_file
from flodl.trainer.ranks.spec import RunSpec

if TYPE_CHECKING:
    from flodl.distributed.serving.contract import Door
    from flodl.monitor.timeline import Timeline
    from flodl.records.events import EventKind
    from flodl.web.extension import Extension

_logger = logging.getLogger(__name__)


def be_controller(spec: RunSpec) -> None:
    """Direct the run that this process was started for, until it is over.

    Raises:
        ConfigError: The settings do not fit what was started.
    """
    process = controller_process()
    config, place = spec.config, process.place
    offer = RunOffer.read(Path(place.run_dir))
    settings = spec.settings(offer.devices, place.nonce, on_gpu=offer.on_gpu)
    saved = process.saved_state()
    core = _core(spec, settings, saved)
    audience = _audience(spec, place, offer, settings, restarted=saved is not None)
    plane = audience.plane
    guard = TerminationGuard(audience.terminated)
    guard.watch_signal()

    def open_door(listener: socket.socket, extension: Extension) -> Door:
        portal_place = _place(offer, config.watching().place, listener)
        plane.serve(portal_place, extension, listener)
        return _LastDoor(audience)

    save_path = None if config.save_path is None else Path(config.save_path)
    try:
        process.serve(
            core,
            timeouts=settings.timeouts,
            audience=KeptSaver(audience, place, save_path),
            open_door=open_door,
            death_stem=None if config.save_path is None else str(config.save_path),
        )
    finally:
        remove_kept(run_prefix(place.run))
        plane.finish(audience.outcome)
        guard.release()
        if config.timeline is not None:
            _ship(config.timeline, timeline_file(Path(place.run_dir)))


class _LastDoor:
    """The port of a run: before it closes, viewers are told how the run has ended."""

    def __init__(self, audience: RunAudience) -> None:
        self._audience = audience

    def stop(self) -> None:
        """Tell the viewers, and close it."""
        self._audience.plane.finish(self._audience.outcome)


def _audience(
    spec: RunSpec, place: RunPlace, offer: RunOffer, settings: RunSettings, *, restarted: bool
) -> RunAudience:
    """Return what shows the run, with all that the user wants of it open."""
    config, timeline = spec.config, spec.config.timeline
    mode = str(settings.elche.mode)
    board = _board(spec, place, mode)
    shown = settings_shown(spec, ranks=len(offer.devices), mode=mode)
    board.set_metadata(shown)
    feed = RankFeed(
        board,
        RecordTier([place.host] * len(offer.devices), clustered=offer.hosts > 1),
        reports_per_epoch=config.reports_per_epoch,
        on_sample=None if timeline is None else timeline.rank_sample,
    )
    on_cpu = mode.startswith("cpu")
    audience = RunAudience(
        feed,
        settings.plan,
        devices=offer.devices,
        settings=shown,
        on_cpu=on_cpu,
        restarted=restarted,
    )
    audience.plane = RunPlane(board, on_tick=audience.tick)
    audience.on_portrait = partial(_leave_portrait, Path(place.run_dir))
    config.watching().equip(
        audience.plane,
        given=() if config.monitor is None else config.monitor.sinks,
        devices=[device.index for device in offer.devices] if offer.on_gpu else (),
    )
    if timeline is not None:
        stem = "" if config.save_path is None else str(config.save_path)
        audience.chronicle = Chronicle(_placing(timeline), on_cpu=on_cpu, checkpoint_path=stem)
    return audience


def _placing(timeline: Timeline) -> Callable[[EventKind, float], None]:
    return lambda event, ago_ms: timeline.event(event, ago_ms=ago_ms)


def _leave_portrait(folder: Path, portrait: Portrait) -> None:
    """Leave it for the launcher; what keeps it from that is told."""
    try:
        portrait.write(folder)
    except MonitorExportError as error:
        _logger.warning("the launcher does not learn of the model: %s", error)


def _ship(timeline: Timeline, file: Path) -> None:
    """Leave the timeline for the launcher; what keeps it from that is told."""
    try:
        timeline.ship(file)
    except MonitorExportError as error:
        _logger.warning("the timeline does not reach the launcher: %s", error)


def _core(spec: RunSpec, settings: RunSettings, saved: dict[str, Any] | None) -> Controller:
    """Return the controller: of a new run, of a checkpoint's, or of one that lost its first."""
    if saved is not None:
        return Controller.restarted(settings, saved, time.monotonic())
    meta = spec.resume_meta(settings)
    return Controller(settings) if meta is None else Controller.resumed(settings, meta)


def _board(spec: RunSpec, place: RunPlace, mode: str) -> RunBoard:
    config = spec.config
    assert config.num_epochs is not None
    board = RunBoard()
    board.tree.describe(
        id=place.run,
        label=program_name() or type(config.dataset).__name__,
        total_epochs=config.num_epochs,
        mode=mode,
        started_ts=int(time.time() * 1000),
        reports_per_epoch=config.reports_per_epoch,
    )
    return board


def program_name() -> str:
    """Return what the program is called, empty where it has no name that says anything."""
    stem = Path(sys.argv[0]).stem if sys.argv else ""
    if stem in {"__main__", "__init__"}:
        return Path(sys.argv[0]).parent.name
    return "" if stem in {"", "-c", "-m", "ipykernel_launcher"} else stem


def _place(offer: RunOffer, asked: ServePlace | None, listener: socket.socket) -> ServePlace:
    """Return where the portal is: on the socket that the launcher has bound."""
    host, port = listener.getsockname()[:2]
    token = None if asked is None else asked.token
    allowed: tuple[str, ...] = ()
    if offer.monitor is not None:
        given, hosts = offer.monitor.get("token"), offer.monitor.get("allowed_hosts")
        token = given if isinstance(given, str) else token
        allowed = tuple(map(str, hosts)) if isinstance(hosts, list) else ()
    return ServePlace(port=port, host=host, token=token, allowed_hosts=allowed)
