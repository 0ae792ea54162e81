"""The controller around its pure core: events in from the port, commands out to it."""

from __future__ import annotations

import dataclasses
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from flodl.distributed.controller.commands import (
    Command,
    Finish,
    Persist,
    PublishEpoch,
    PublishEval,
    RaiseAlert,
    StateChanged,
    ToHost,
    ToMember,
    ToMembers,
    WriteDeath,
)
from flodl.distributed.controller.events import (
    AbortRequested,
    Event,
    FromHost,
    FromMember,
    HostLinkLost,
    LauncherBack,
    LauncherLost,
    StartRequested,
    StopRequested,
    Tick,
)
from flodl.distributed.protocol import MAX_FRAME_BYTES, Frame
from flodl.distributed.protocol.messages import StoreReply, StoreRequest, World
from flodl.distributed.protocol.values import Plain
from flodl.distributed.serving.contract import (
    Audience,
    Core,
    Door,
    Heard,
    NoAudience,
    ServerOptions,
)
from flodl.distributed.serving.desk import MAX_NOTE_BYTES, LauncherDesk, Note
from flodl.distributed.serving.doorkeeper import Doorkeeper
from flodl.distributed.serving.journal import ControllerJournal
from flodl.distributed.serving.routes import PATHS, Director, control_routes
from flodl.distributed.serving.store import StoreServer
from flodl.distributed.serving.switchboard import Outgoing, Switchboard
from flodl.records.record import encode_json
from flodl.web.extension import Extension

_logger = logging.getLogger(__name__)
_LAUNCHER_S = 10.0
_Work: TypeAlias = "Event | Note"


class ControllerServer:
    """Runs a core until it is finished, in the thread that calls :meth:`run`.

    Args:
        core: Decides.
        options: The run.
        open_door: Opens the port with the control routes beside what else it serves.
        journal: Takes the core's state when it is to be kept.
        audience: Takes what the core publishes.
    """

    def __init__(
        self,
        core: Core,
        options: ServerOptions,
        open_door: Callable[[Extension], Door],
        *,
        journal: ControllerJournal,
        audience: Audience | None = None,
    ) -> None:
        self._core, self._options = core, options
        self._open_door = open_door
        self._journal = journal
        self._audience = NoAudience() if audience is None else audience
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._finish: Finish | None = None
        self._launcher_came = False
        self._launcher_left = threading.Event()
        self._state: tuple[str, str] = ("waiting", "")
        self._doorkeeper = Doorkeeper(options.token)
        self._switchboard = Switchboard(
            options.place.nonce,
            on_frame=self._on_frame,
            on_store=self._on_store,
            on_lost=lambda host: self.put(HostLinkLost(host=host)),
        )
        self._store = StoreServer(self._answer, options.place.run)
        self._desk = LauncherDesk(
            self._work.put,
            on_lost=self._on_launcher_lost,
            on_back=self._on_launcher_back,
        )

    def put(self, event: Event) -> None:
        """Have the core take an event soon; any thread may call it."""
        self._work.put(event)

    def run(self) -> Finish:
        """Serve until the core is finished and everyone concerned was told."""
        # at debug level the server logs headers, and with them the token
        logging.getLogger("uvicorn.error").addFilter(_is_no_detail)
        door = self._open_door(self._extension())
        patience = threading.Timer(self._options.timeouts.boot, self._miss_launcher)
        patience.daemon = True
        patience.start()
        try:
            self._step(Tick())
            while self._finish is None:
                work = self._next()
                if isinstance(work, dict):
                    self._direct(work)
                else:
                    self._step(work)
            self._part()
        finally:
            patience.cancel()
            door.stop()
        return self._finish

    def state(self) -> dict[str, Any]:
        """Return what ``/state.json`` says."""
        name, reason = self._state
        return {
            "run": self._options.place.run,
            "state": name,
            "reason": reason,
            "hosts": sorted(self._switchboard.hosts),
            "attempt": self._options.place.attempt,
            "timeouts": dataclasses.asdict(self._options.timeouts),
        }

    # ------------------------------------------------------------ the core's thread

    def _next(self) -> _Work:
        deadline = self._core.next_deadline()
        if deadline is None:
            return self._work.get()
        try:
            return self._work.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return Tick()

    def _step(self, event: Event) -> None:
        if isinstance(event, FromMember) and isinstance(event.message, Heard):
            self._hear(event.uid, event.message)
        outgoing: list[Outgoing] = []
        for command in self._core.handle(event, time.monotonic()):
            self._do(command, outgoing)
        self._switchboard.post(outgoing)

    def _do(self, command: Command, outgoing: list[Outgoing]) -> None:
        match command:
            case ToHost(host=host, gen=gen, message=message):
                outgoing.append(Outgoing(message, gen, host=host))
            case ToMember(uid=uid, gen=gen, message=message):
                outgoing.append(Outgoing(message, gen, member=uid))
            case ToMembers(uids=uids, gen=gen, message=message):
                if isinstance(message, World):
                    self._store.begin(message.nonce)
                outgoing += [Outgoing(message, gen, member=uid) for uid in uids]
            case Persist():
                self._persist()
            case WriteDeath(number=number, details=details):
                self._write_death(number, details)
            case StateChanged(state=state, reason=reason):
                self._state = (state, reason)
                self._desk.post({"op": "state", "state": state, "reason": reason})
            case Finish():
                self._finish = command
        self._tell(command)

    def _hear(self, uid: str, message: Heard) -> None:
        try:
            self._audience.hear(uid, message)
        except Exception:
            _logger.exception("records of the run could not take what %s tells", uid)

    def _tell(self, command: Command) -> None:
        note = launcher_note(command)
        if note is not None:
            self._desk.post(note)
        try:
            self._audience.take(command)
        except Exception:
            _logger.exception("records of the run could not take %s", type(command).__name__)

    def _persist(self) -> None:
        was_sound = self._journal.problem is None
        self._journal.write(self._core.to_state())
        if was_sound and self._journal.problem is not None:
            text = f"the journal cannot be written: {self._journal.problem}"
            self._tell(RaiseAlert(code="journal_failed", message=text, level="error"))

    def _write_death(self, number: int, details: dict[str, Plain]) -> None:
        stem = self._options.death_stem or str(Path(self._options.place.run_dir) / "run")
        file = Path(f"{stem}.rank{number}.death.json")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encode_json(details))
        except OSError as error:
            text = f"{file} cannot be written: {error.strerror}"
            self._tell(RaiseAlert(code="death_file_failed", message=text))

    def _direct(self, note: Note) -> None:
        match note:
            case {"op": "stop"}:
                reason = str(note.get("reason") or "graceful_shutdown")
                self._step(StopRequested(save=bool(note.get("save", True)), reason=reason))
            case {"op": "abort"}:
                self._step(AbortRequested(reason=str(note.get("reason") or "aborted")))
            case {"op": "start"}:
                self._step(StartRequested())
            case {"op": "bye"}:
                self._launcher_left.set()
            case _:
                self._audience.direct(note)

    def _part(self) -> None:
        """Let daemons go and the launcher take its result."""
        give_up = time.monotonic() + self._options.timeouts.drain
        while self._switchboard.hosts and time.monotonic() < give_up:
            self._drain_work()
        give_up = time.monotonic() + _LAUNCHER_S
        while self._options.launcher_is_expected and not self._launcher_left.is_set():
            if time.monotonic() > give_up:
                return
            self._drain_work()

    def _drain_work(self) -> None:
        try:
            work = self._work.get(timeout=0.02)
        except queue.Empty:
            return
        if isinstance(work, dict):
            self._direct(work)
        else:
            self._step(work)

    # ------------------------------------------------------------ the server's loop

    def _extension(self) -> Extension:
        director = Director(
            state=self.state,
            start=self._start,
            stop=lambda: self.put(StopRequested()),
        )
        router = control_routes(
            instance=secrets.token_hex(8),
            bound_to=self._options.bound_to,
            is_encrypted=self._options.is_encrypted,
            doorkeeper=self._doorkeeper,
            switchboard=self._switchboard,
            desk=self._desk,
            director=director,
        )
        return Extension(
            routers=[router],
            paths=PATHS,
            is_reader=self._doorkeeper.knows,
            websocket_bytes=max(MAX_FRAME_BYTES, MAX_NOTE_BYTES),
        )

    def _on_frame(self, host: str, frame: Frame) -> None:
        if frame.member:
            self.put(FromMember(uid=frame.member, gen=frame.gen, message=frame.message))
        else:
            self.put(FromHost(host=host, gen=frame.gen, message=frame.message))

    def _on_store(self, _host: str, frame: Frame) -> None:
        assert isinstance(frame.message, StoreRequest)
        self._store.ask(frame.member, frame.gen, frame.message)

    def _answer(self, member: str, gen: int, reply: StoreReply) -> None:
        self._switchboard.deliver(Outgoing(reply, gen, member=member))

    def _on_launcher_back(self) -> None:
        self._launcher_came = True
        self.put(LauncherBack())

    def _miss_launcher(self) -> None:
        """Take a launcher for lost that died before it ever came."""
        if self._options.launcher_is_expected and not self._launcher_came:
            self.put(LauncherLost())

    def _on_launcher_lost(self) -> None:
        if not self._launcher_left.is_set():
            self.put(LauncherLost())

    def _start(self) -> tuple[bool, str]:
        name, _ = self._state
        if name != "staging":
            return False, f"the run is {name}, and only a staging one waits for a start"
        self.put(StartRequested())
        return True, ""


def _is_no_detail(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def launcher_note(command: Command) -> Note | None:
    """Return what the launcher is told of a command, ``None`` where that is nothing."""
    match command:
        case RaiseAlert():
            return {"op": "alert", **_plain(command)}
        case PublishEpoch(metrics=metrics):
            return {"op": "epoch", "epoch": metrics.epoch, "metrics": _plain(metrics)}
        case PublishEval(epoch=epoch, values=values):
            return {"op": "eval", "epoch": epoch, "values": dict(values)}
        case Finish():
            return {"op": "finish", **_plain(command)}
    return None


def _plain(value: Any) -> dict[str, Plain]:
    return dataclasses.asdict(value)
