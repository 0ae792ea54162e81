"""Everything a run is at one moment: plain state that the steps of the controller work on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from flodl.distributed.config import ConvergenceGuard
from flodl.distributed.controller.commands import (
    Command,
    RaiseAlert,
    ToHost,
    ToMember,
    ToMembers,
)
from flodl.distributed.controller.duties import DutyDesk
from flodl.distributed.controller.leasing import Horizon
from flodl.distributed.controller.ledger import Ledger
from flodl.distributed.controller.roster import Member, MemberState, Roster
from flodl.distributed.controller.settings import RunSettings
from flodl.distributed.controller.tallies import EpochTally
from flodl.distributed.controller.window import Window
from flodl.distributed.elche import DriftRate, ElChe, LrRamp, MetaController, Overshoot, guard_of
from flodl.distributed.protocol.messages import Message, Quiesced, RankError
from flodl.distributed.protocol.values import Plain

KEPT_WINDOWS = 1000


class RunState(StrEnum):
    """What a run is doing, by the name that people see."""

    INIT = "init"
    WAITING = "waiting"
    STAGING = "staging"
    FORMING = "forming"
    TRAINING = "training"
    RECONFIGURING = "reconfiguring"
    DRAINING = "draining"
    SAVING = "saving"
    DONE = "done"
    FAILED = "failed"


OVER = frozenset({RunState.DONE, RunState.FAILED})


@dataclass(kw_only=True, slots=True)
class Formation:
    """A generation that is being formed."""

    acked: set[str] = field(default_factory=set)
    synced: set[str] = field(default_factory=set)
    is_syncing: bool = False
    attempts: int = 0
    """Generations in a row that could not be formed."""


@dataclass(kw_only=True, slots=True)
class Recovery:
    """Why a generation ended, and who has not yet answered."""

    reason: str = ""
    awaiting: set[str] = field(default_factory=set)
    fencing: set[str] = field(default_factory=set)
    quiesced: dict[str, Quiesced] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    """Members whose work has not been taken back yet."""


@dataclass(kw_only=True, slots=True)
class Throttling:
    """Members that take no batch for now, as they are too far ahead."""

    held: set[str] = field(default_factory=set)
    look_at: float = 0.0
    """When to look again."""


@dataclass(kw_only=True, slots=True)
class Ending:
    """Why the run ends before its work is done."""

    reason: str
    save: bool = True
    is_failed: bool = False


@dataclass(kw_only=True, slots=True)
class History:
    """What the report tells when the run is over."""

    deaths: list[dict[str, Plain]] = field(default_factory=list)
    generations: list[dict[str, Plain]] = field(default_factory=list)
    windows: deque[dict[str, Plain]] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    void_windows: int = 0
    late_snapshots: int = 0
    """Snapshots that an average was made without."""
    stale_messages: int = 0
    errors: list[RankError] = field(default_factory=list)
    """What ranks raised, the first of each kind."""
    error_counts: dict[str, int] = field(default_factory=dict)


class Run:
    """State of one run, and the commands that its current step has given so far.

    Args:
        settings: What the run was told.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.state = RunState.INIT
        self.next_state: RunState | None = None
        self.reason = ""
        self.now = 0.0
        self.commands: list[Command] = []
        self.deadlines: dict[str, float] = {}
        self.gen = 0
        self.version = 0
        self.last_window = 0
        self.global_step = 0
        self.next_epoch = 0
        self.world: tuple[str, ...] = ()
        self.started = False
        """Whether a generation has ever trained."""
        self.is_resumed = False
        """Whether the first generation takes its state from a checkpoint."""
        self.resumed_from: Mapping[str, Any] = {}
        """What that checkpoint's list holds."""
        self.heirs: tuple[str, ...] = ()
        """Members of the first generation, each going on as the rank of that number."""
        self.devices: dict[str, str] = {}
        """Device name of each member that the cadence knows."""
        self.last_growth = float("-inf")
        self.reduce_ema_s = 0.0
        self.stalled_reduces = 0
        """Reduces in a row that stalled although everyone was alive."""
        self.roster = Roster()
        self.formation = Formation()
        self.recovery = Recovery()
        self.ending: Ending | None = None
        self.window: Window | None = None
        self.ledger = Ledger(settings.plan)
        self.horizon = Horizon()
        self.hungry: set[str] = set()
        """Members that asked for work when there was none."""
        self.throttling = Throttling()
        self.tallies: dict[int, EpochTally] = {}
        self.desk = DutyDesk()
        self.history = History()
        self.elche: ElChe | None = None
        self.counts: dict[str, int] = {}
        self.total_count = 0
        self.guard: ConvergenceGuard = guard_of(settings.elche)
        self.drift = DriftRate()
        self.meta = MetaController()
        self.ramp = LrRamp(ratio=settings.lr_scale_ratio)
        self.overshoot = Overshoot(
            epoch_batches=settings.plan.epoch_batches, fixed=settings.elche.max_overshoot
        )
        self.launcher_lost = False

    # What steps do

    def go(self, state: RunState, reason: str = "") -> None:
        """Ask for another state; it is entered when the current step is over.

        Failure is final, and nothing is asked for after it.
        """
        if self.next_state is not RunState.FAILED and self.state not in OVER:
            self.next_state, self.reason = state, reason

    def emit(self, command: Command) -> None:
        """Add a command to what the current step gives."""
        self.commands.append(command)

    def send(self, uid: str, message: Message) -> None:
        """Send a message to one member."""
        self.commands.append(ToMember(uid=uid, gen=self.gen, message=message))

    def broadcast(self, message: Message, uids: Iterable[str] | None = None) -> None:
        """Send a message to several members, all of the generation by default."""
        receivers = self.world if uids is None else tuple(uids)
        if receivers:
            self.commands.append(ToMembers(uids=receivers, gen=self.gen, message=message))

    def send_host(self, host: str, message: Message) -> None:
        """Send a message to a host's daemon."""
        self.commands.append(ToHost(host=host, gen=self.gen, message=message))

    def alert(
        self,
        code: str,
        message: str,
        level: Literal["info", "warning", "error"] = "warning",
        fields: dict[str, Plain] | None = None,
    ) -> None:
        """Show people something that they should know."""
        self.commands.append(
            RaiseAlert(code=code, message=message, level=level, fields=fields or {})
        )

    def set_deadline(self, name: str, seconds: float) -> None:
        """Let a named timer run out after some seconds; it replaces one of that name."""
        self.deadlines[name] = self.now + seconds

    def clear_deadlines(self, *names: str) -> None:
        """Stop named timers."""
        for name in names:
            self.deadlines.pop(name, None)

    # What steps ask

    @property
    def is_grads(self) -> bool:
        """Whether ranks average gradients at each step by themselves."""
        return self.settings.elche.payload == "grads"

    @property
    def is_async(self) -> bool:
        """Whether ranks go on training while an average is made."""
        return self.settings.elche.mode.is_async

    @property
    def cadence(self) -> ElChe:
        """The cadence, which exists from the first formation on."""
        assert self.elche is not None
        return self.elche

    @property
    def epoch(self) -> int:
        """The epoch that is worked on."""
        open_epochs = self.ledger.open_epochs
        return open_epochs[0] if open_epochs else max(0, self.next_epoch - 1)

    @property
    def is_all_done(self) -> bool:
        """Whether every epoch is complete."""
        return self.next_epoch >= self.settings.plan.num_epochs and not self.ledger.open_epochs

    def active(self) -> list[Member]:
        """Return the members of the generation that are not lost, by number."""
        return self.roster.in_state(MemberState.ACTIVE)

    def speeds(self) -> dict[str, float | None]:
        """Return the smoothed milliseconds of each member."""
        if self.elche is None:
            return {}
        return dict(zip(self.elche.members, self.elche.ms_per_batch, strict=True))

    def take_counts(self) -> None:
        """Take over the batches of the next window from the cadence."""
        counts = self.cadence.batch_counts
        self.counts = dict(zip(self.cadence.members, counts, strict=True))
        self.total_count = sum(counts)
