"""Which event is for whom: tables, so that every pair of state and event has an outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from flodl.distributed.controller import (
    callbacks,
    ending,
    forming,
    joining,
    liveness,
    recovering,
    training,
    windows,
    work,
)
from flodl.distributed.controller.events import (
    AbortRequested,
    LauncherBack,
    LauncherLost,
    StartRequested,
    StopRequested,
)
from flodl.distributed.controller.roster import Member
from flodl.distributed.controller.run import OVER, Run, RunState
from flodl.distributed.protocol.messages import (
    AlertRaised,
    AtBarrier,
    Beat,
    Bye,
    CallbackDone,
    Fenced,
    FormAck,
    Hello,
    LeaseAck,
    LogLine,
    Message,
    Nack,
    Progress,
    Quiesced,
    RankError,
    RankExit,
    Ready,
    Reduced,
    Stop,
    Synced,
    TelemetryRecord,
    WindowReport,
)

Outcome = Literal["handled", "ignored", "refused"]
States = frozenset[RunState]

ANY: States = frozenset(RunState)
RUNNING: States = ANY - OVER
WINDOWED: States = frozenset({RunState.TRAINING, RunState.DRAINING})


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """Where an event goes.

    Outside its states an event is ignored if it may well come late, and refused otherwise.
    """

    to: Callable[..., Any]
    states: States
    late: States = ANY
    is_of_generation: bool = False
    """Whether it says nothing once its generation is over."""

    def outcome(self, state: RunState) -> Outcome:
        """Return what becomes of the event in a state."""
        if state in self.states:
            return "handled"
        return "ignored" if state in self.late else "refused"


def _note(run: Run, member: Member, message: Message) -> None:
    """Take a message that is for people: the rim has passed it on already."""


def _bye(run: Run, member: Member, message: Bye) -> None:  # noqa: ARG001
    ending.on_bye(run, member)


def _stop_from_rank(run: Run, member: Member, message: Stop) -> None:  # noqa: ARG001
    reason = message.reason or "graceful_shutdown"
    ending.on_stop(run, StopRequested(save=message.save, reason=reason))


NOT_BEFORE: States = ANY - {RunState.INIT, RunState.WAITING, RunState.STAGING}
"""States in which a message of training may be a late one."""

FROM_MEMBER: dict[type[Message], Route] = {
    Ready: Route(to=joining.on_ready, states=RUNNING),
    FormAck: Route(
        to=forming.on_form_ack,
        states=frozenset({RunState.FORMING}),
        late=NOT_BEFORE,
        is_of_generation=True,
    ),
    Synced: Route(
        to=forming.on_synced,
        states=frozenset({RunState.FORMING}),
        late=NOT_BEFORE,
        is_of_generation=True,
    ),
    Quiesced: Route(
        to=recovering.on_quiesced,
        states=WINDOWED | {RunState.RECONFIGURING, RunState.FORMING},
        is_of_generation=True,
    ),
    LeaseAck: Route(
        to=work.on_lease_ack,
        states=frozenset({RunState.TRAINING}),
        late=NOT_BEFORE,
        is_of_generation=True,
    ),
    WindowReport: Route(
        to=training.take_report, states=WINDOWED, late=NOT_BEFORE, is_of_generation=True
    ),
    AtBarrier: Route(
        to=training.take_arrival, states=WINDOWED, late=NOT_BEFORE, is_of_generation=True
    ),
    Reduced: Route(
        to=training.take_result, states=WINDOWED, late=NOT_BEFORE, is_of_generation=True
    ),
    CallbackDone: Route(to=callbacks.on_callback_done, states=RUNNING),
    RankError: Route(to=ending.on_rank_error, states=RUNNING),
    Bye: Route(to=_bye, states=RUNNING),
    Stop: Route(to=_stop_from_rank, states=RUNNING),
    Nack: Route(to=_note, states=ANY),
    Beat: Route(to=_note, states=ANY),
    TelemetryRecord: Route(to=_note, states=ANY),
    AlertRaised: Route(to=_note, states=ANY),
    LogLine: Route(to=_note, states=ANY),
}


def _note_of_host(run: Run, host: str, message: Message) -> None:
    """Take a message that is for people, or only shows that the host is there."""


def _progress(run: Run, host: str, message: Progress) -> None:  # noqa: ARG001
    liveness.on_progress(run, message)


def _rank_exit(run: Run, host: str, message: RankExit) -> None:  # noqa: ARG001
    recovering.on_rank_exit(run, message)


def _fenced(run: Run, host: str, message: Fenced) -> None:  # noqa: ARG001
    recovering.on_fenced(run, message)


FROM_HOST: dict[type[Message], Route] = {
    Hello: Route(to=joining.on_hello, states=ANY),
    Progress: Route(to=_progress, states=RUNNING),
    RankExit: Route(to=_rank_exit, states=RUNNING),
    Fenced: Route(to=_fenced, states=RUNNING),
    Nack: Route(to=_note_of_host, states=ANY),
    Beat: Route(to=_note_of_host, states=ANY),
    Bye: Route(to=_note_of_host, states=ANY),
    TelemetryRecord: Route(to=_note_of_host, states=ANY),
    AlertRaised: Route(to=_note_of_host, states=ANY),
    LogLine: Route(to=_note_of_host, states=ANY),
}


def _start(run: Run, event: StartRequested) -> None:  # noqa: ARG001
    joining.on_start_requested(run)


def _launcher_lost(run: Run, event: LauncherLost) -> None:  # noqa: ARG001
    liveness.on_launcher_lost(run)


def _launcher_back(run: Run, event: LauncherBack) -> None:  # noqa: ARG001
    liveness.on_launcher_back(run)


LOCAL: dict[type[Any], Route] = {
    StartRequested: Route(
        to=_start, states=frozenset({RunState.WAITING, RunState.STAGING}), late=frozenset()
    ),
    StopRequested: Route(to=ending.on_stop, states=RUNNING),
    AbortRequested: Route(to=ending.on_abort, states=RUNNING),
    LauncherLost: Route(to=_launcher_lost, states=RUNNING),
    LauncherBack: Route(to=_launcher_back, states=RUNNING),
}

TIMERS: dict[str, Callable[..., None]] = {
    "watch": liveness.watch,
    "join_window": joining.on_window_end,
    "join_cap": joining.on_join_cap,
    "boot": joining.on_boot_overdue,
    "restart": joining.on_restart_overdue,
    "quorum": liveness.on_quorum_overdue,
    "formation": forming.on_overdue,
    "quiesce": recovering.on_overdue,
    "fence": recovering.on_fence_overdue,
    "barrier": liveness.on_barrier_overdue,
    "ahead": windows.let_run_ahead,
    "reduce": liveness.on_reduce_overdue,
    "snapshot": training.on_snapshot_overdue,
    "slow_window": windows.on_slow_window,
    "callback": callbacks.on_callback_overdue,
    "launcher": liveness.on_launcher_overdue,
    "drain": liveness.on_drain_overdue,
    "bye": ending.on_goodbyes_overdue,
}


def _stay(run: Run) -> None:
    """Wait to be told to start."""


ENTER: dict[RunState, Callable[[Run], None]] = {
    RunState.WAITING: joining.open_door,
    RunState.STAGING: _stay,
    RunState.FORMING: forming.begin,
    RunState.TRAINING: training.begin,
    RunState.RECONFIGURING: recovering.begin,
    RunState.DRAINING: ending.drain,
    RunState.SAVING: ending.save,
    RunState.DONE: ending.finish,
    RunState.FAILED: ending.finish,
}
