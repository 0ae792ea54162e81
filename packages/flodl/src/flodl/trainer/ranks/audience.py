"""Turns what the controller publishes into records, as viewers and sinks see them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from flodl.distributed.controller.commands import (
    Command,
    Finish,
    PublishEpoch,
    PublishEval,
    PublishProgress,
    PublishWindow,
    RaiseAlert,
    StateChanged,
    ToMember,
    ToMembers,
)
from flodl.distributed.protocol.messages import (
    AlertRaised,
    CallbackDone,
    LogLine,
    Nack,
    Reduced,
    TelemetryRecord,
    Throttle,
    World,
)
from flodl.distributed.worker.witness import machine_of
from flodl.records.alerts import SEVERITIES
from flodl.records.telemetry import RankTelemetry
from flodl.trainer.portrait import Portrait
from flodl.trainer.ranks.costs import COSTS, show_costs
from flodl.trainer.ranks.introduction import MODEL, show_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flodl.distributed.controller.ledger import WorkPlan
    from flodl.distributed.protocol.values import Device, Place
    from flodl.distributed.serving.contract import Heard
    from flodl.distributed.serving.desk import Note
    from flodl.monitor.plane import RunPlane
    from flodl.records.feed import RankFeed
    from flodl.records.record import RunStatus, Severity
    from flodl.trainer.ranks.chronicle import Chronicle

_LOST = "rank_lost"
_BROKEN_OFF = frozenset({"interrupted", "graceful_shutdown"})
_TOLD_BY_FEED = frozenset({_LOST, "rank_joined"})
_OF_THE_WINDOW = frozenset({"steps", "samples", "wall_ms", "lr"})
_TIMING = {"compute_ms": "compute_only_ms", "starve_ms": "data_starve"}
"""Times of a window, and the curves of what a step takes of them."""
_AT_ROOT = {"divergence": "d_raw", "anchor": "anchor", "lambda_ema": "lambda_ema"}
"""What the run itself has of curves, by the controller's names."""
_SEVERITIES: dict[str, Severity] = {"info": "info", "warning": "warn", "error": "critical"}


class RunAudience:
    """Feeds the record tree of a run from the controller's commands.

    Args:
        feed: Makes the records.
        plan: Says how much work an epoch is.
        devices: What the run was started with on this host, by a member's ordinal.
        settings: Settings of the run that are shown.
        on_cpu: Whether averages are made on the CPU, beside the steps.
        restarted: Whether another controller directed the run before.
    """

    plane: RunPlane
    """Carries out what the launcher's monitor asks for."""
    on_portrait: Callable[[Portrait], object] = staticmethod(lambda _: None)
    """Called with what the run says of its model and settings, once a rank has told."""
    chronicle: Chronicle | None = None
    """Where events of the run go, ``None`` where nobody keeps them."""

    def __init__(
        self,
        feed: RankFeed,
        plan: WorkPlan,
        *,
        devices: Sequence[Device] = (),
        settings: Mapping[str, Any] | None = None,
        on_cpu: bool = False,
        restarted: bool = False,
    ) -> None:
        self._feed = feed
        self._plan = plan
        self._devices = devices
        self._settings = dict(settings or {})
        self._average = "cpu_avg_ms" if on_cpu else "sync_ms"
        self._restarted = restarted
        self._epoch: int | None = None
        self._step: int | None = None
        self._finish: Finish | None = None
        self._numbers: dict[str, int] = {}
        self._world: tuple[int, ...] = ()
        self._told: list[RankTelemetry] = []
        self._spent: dict[int, float] = {}
        self._lock = threading.Lock()

    @property
    def outcome(self) -> RunStatus:
        """How the run has ended; failed as long as nobody has told."""
        finish = self._finish
        if finish is None or finish.is_failed:
            return "failed"
        return "aborted" if finish.reason in _BROKEN_OFF else "done"

    def terminated(self) -> None:
        """End what viewers see: this process is told to end before the run has."""
        self.plane.finish("aborted")

    def tick(self) -> None:
        """Publish what is due by the clock; the plane calls it about once a second."""
        with self._lock:
            self._feed.tick()

    def take(self, command: Command) -> None:
        """Publish what a command holds."""
        with self._lock:
            match command:
                case ToMembers(message=World() as world):
                    self._meet(world.members)
                case ToMember(uid=uid, message=Throttle()):
                    if self.chronicle is not None and uid in self._numbers:
                        self.chronicle.throttled(self._numbers[uid])
                case PublishWindow():
                    self._window(command)
                case PublishProgress():
                    self._progress(command)
                case PublishEval():
                    self._feed.evaluated(command.epoch, command.values)
                case PublishEpoch():
                    self._end_of_epoch(command)
                case RaiseAlert():
                    self._alert(command)
                case Finish():
                    self._finish = command
                case StateChanged():
                    self._feed.board.tree.log("root", f"{command.state} {command.reason}".strip())

    def direct(self, note: Note) -> None:
        """Do what the launcher's monitor asks for."""
        command = note.get("command")
        if note.get("op") != "monitor" or not isinstance(command, dict):
            return
        given = command.get("metadata")
        if isinstance(given, dict):
            command = {**command, "metadata": {**self._settings, **given}}
        self.plane.apply(command)

    def hear(self, uid: str, message: Heard | Nack) -> None:
        """Publish what a rank tells of itself; one that nobody has met is passed over."""
        if isinstance(message, TelemetryRecord) and message.path:
            self._picture(message)  # told when the model is built, before its rank is met
            return
        number = self._numbers.get(uid)
        if number is None:
            return
        with self._lock:
            self._hear_of(number, message)
            if self.chronicle is not None:
                _note(self.chronicle, number, message)

    def _picture(self, message: TelemetryRecord) -> None:
        if message.path == MODEL:
            settings = dict(self._settings)
            show_model(self._feed.board, self._settings, message.values)
            self.on_portrait(Portrait.of(message.values, settings))
        elif message.path == COSTS:
            show_costs(self._feed.board, message.values)

    def _hear_of(self, number: int, message: Heard | Nack) -> None:
        tree, path = self._feed.board.tree, self._feed.path(number)
        match message:
            case TelemetryRecord():
                self._feed.resources({**message.values, "rank": number})
            case AlertRaised(code=code, message=text, level=level):
                tree.alert(code, path, text, severity=_severity(code, level))
            case LogLine(level=level, text=text):
                tree.log(path, text, severity=_SEVERITIES.get(level, "info"))
            case Nack(kind=kind, reason=reason):
                tree.alert("control_drop", path, f"{kind!r} was not taken: {reason}")

    def _meet(self, places: tuple[Place, ...]) -> None:
        self._world = tuple(place.number for place in places)
        for place in places:
            if place.uid not in self._numbers or place.is_new:
                self._numbers[place.uid] = place.number
                name, index = self._device(place.uid)
                host = machine_of(place.host)
                path = self._feed.join(place.number, host, label=name, device=index)
                self._show_timeline(path, host)

    def _show_timeline(self, path: str, host: str) -> None:
        """Offer what ranks of a host send, where hosts are levels of their own."""
        timeline, levels = self.plane.timeline, path.split("/")
        board = self.plane.board
        if timeline is not None and len(levels) == 3 and levels[1] not in board.timelines:
            board.add_timeline(levels[1], timeline.of_host(host))

    def _device(self, uid: str) -> tuple[str | None, int | None]:
        """Return name and physical index of a member's device, as far as they are known here."""
        ordinal = uid.rpartition("/")[2]
        if not ordinal.isdecimal() or int(ordinal) >= len(self._devices):
            return None, None
        device = self._devices[int(ordinal)]
        return device.name, None if device.uuid == "cpu" else device.index

    def _enter(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            low, high = self._plan.bounds(epoch)
            self._feed.begin_epoch(epoch, work=high - low, restart=self._restarted)
            self._restarted = False

    def _progress(self, command: PublishProgress) -> None:
        """Take in what one rank did; shown once all have told, so that their rates compare."""
        number = self._numbers.get(command.uid)
        if number is None:
            return
        self._enter(command.epoch)
        if self.chronicle is not None:
            self.chronicle.enter(command.epoch)
        self._step = command.global_step
        self._told.append(
            self._telemetry(number, command.epoch, command.global_step, command.values)
        )
        took = sum(command.values.get(key, 0.0) for key in _TIMING)
        self._spent[number] = self._spent.get(number, 0.0) + took
        if self._spent.keys() >= set(self._world):
            self._tell_progress()

    def _tell_progress(self) -> None:
        told, self._told = self._told, []
        spent, self._spent = self._spent, {}
        if told:
            # an epoch is known of by its first report: the ranks know when it began
            self._feed.window(told, step=self._step, wall_ms=max(spent.values()))

    def _window(self, command: PublishWindow) -> None:
        self._tell_progress()
        self._enter(command.epoch)
        step = self._step = int(command.values.get("global_step", 0))
        told = [
            self._telemetry(self._numbers[uid], command.epoch, step, values)
            for uid, values in command.per_member.items()
            if uid in self._numbers
        ]
        own = {_AT_ROOT[key]: v for key, v in command.values.items() if key in _AT_ROOT}
        if command.per_member and command.values.get("reduce_ms"):
            own[self._average] = command.values["reduce_ms"]
        if command.per_member:
            took = command.values.get("window_ms")
            self._feed.window(told, step=step, wall_ms=took, engine=own)
        if self.chronicle is not None:
            self.chronicle.window(command)

    def _telemetry(
        self, number: int, epoch: int, step: int, values: Mapping[str, float]
    ) -> RankTelemetry:
        samples = round(values.get("samples", 0.0))
        keys = values.keys() - _OF_THE_WINDOW - _TIMING.keys()
        steps = values.get("steps", 0.0)
        return RankTelemetry(
            rank=number,
            step=step,
            epoch=epoch,
            work=samples,
            sums={key: (values[key] * samples, samples) for key in keys if samples},
            timing={
                name: values[key] / steps
                for key, name in _TIMING.items()
                if key in values and steps > 0
            },
        )

    def _end_of_epoch(self, command: PublishEpoch) -> None:
        metrics = command.metrics
        self._tell_progress()
        self._feed.end_epoch(metrics.epoch, duration_secs=metrics.epoch_ms / 1000, step=self._step)
        if self.chronicle is not None:
            self.chronicle.epoch_ended(metrics)

    def _alert(self, alert: RaiseAlert) -> None:
        number = alert.fields.get("rank")
        if alert.code == _LOST and isinstance(number, int) and number in self._numbers.values():
            self._feed.lose(number, alert.message)
            if self.chronicle is not None:
                self.chronicle.lost(number)
        elif alert.code not in _TOLD_BY_FEED:
            severity = _severity(alert.code, alert.level)
            self._feed.board.tree.alert(alert.code, "root", alert.message, severity=severity)


def _note(chronicle: Chronicle, number: int, message: Heard | Nack) -> None:
    """Place what a rank tells on the timeline, where it is an event of it."""
    match message:
        case CallbackDone():
            chronicle.callback_done(message)
        case Reduced(delta=float(delta)):
            chronicle.drifted(number, delta)
        case Nack(kind=kind):
            chronicle.missed(kind)
        case AlertRaised(code="capture", message=text):
            chronicle.fell_back(text)


def _severity(code: str, level: str) -> Severity | None:
    """Return how grave an alert is that has no severity of its own class."""
    return None if code in SEVERITIES else _SEVERITIES.get(level)
