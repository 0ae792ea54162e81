"""The loop of a rank: takes what its machine decides to the model, the data and the plane."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from flodl.core.errors import FormationError
from flodl.data import Batch
from flodl.distributed.averaging.rounds import Progress
from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.distributed.collective.store import StoreClient
from flodl.distributed.lifecycle.rank import GROUPED, RankMachine
from flodl.distributed.lifecycle.rank_events import (
    AbandonReduce,
    ApplyCommit,
    BatchDone,
    Build,
    Built,
    CallbackEnded,
    DropLeases,
    ExecuteCallback,
    Exit,
    Formed,
    FormGroups,
    FromController,
    MeasureWindow,
    Raised,
    RankCommand,
    RankEvent,
    ReduceDone,
    ReduceFailed,
    SaveOrphan,
    Send,
    StartReduce,
    StateTaken,
    TakeLease,
    TakeState,
    Tick,
)
from flodl.distributed.lifecycle.rank_state import RankState
from flodl.distributed.protocol.messages import (
    Abort,
    Message,
    Reconfigure,
    StateSync,
    Stop,
    World,
)
from flodl.distributed.protocol.values import Ranges
from flodl.distributed.worker.failure import failure_of
from flodl.distributed.worker.trainee import Trainee

_IDLE_S = 0.05
_REDUCING_S = 0.0005
_AVERAGING = frozenset({RankState.BARRIER, RankState.REDUCING})
_FORMING = (World, StateSync)
_OF_THE_USER = (Exception, SystemExit)
"""What user code may raise, which the controller tells; also a ``sys.exit()`` in a step."""


class Link(Protocol):
    """A rank's connection to its controller; see ``RankLink``."""

    @property
    def store(self) -> StoreClient:
        """Where groups find each other."""
        ...

    def take(self) -> Sequence[RankEvent]:
        """Return what has arrived, without waiting."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has arrived; return whether it has."""
        ...

    def is_interrupted(self) -> bool:
        """Return whether to give up what is waited for, and take the mail instead."""
        ...

    def send(self, message: Message, gen: int = 0) -> None:
        """Send a message under a generation."""
        ...

    def progress(
        self, phase: str, *, step: int, window_steps: int = 0, batch_ms: float = 0.0
    ) -> None:
        """Show the host how far this rank is."""
        ...


class RankLoop:
    """Runs one rank from its admission to its exit.

    :meth:`run` trains what :meth:`next_batch` gives. A loop of the user's own calls :meth:`join`,
    :meth:`next_batch` and :meth:`take` itself, and :meth:`stop` or :meth:`fail` where it ends
    before the run does.

    Args:
        machine: Decides.
        link: The way to the controller.
        build: Makes the trainee, once the rank is admitted.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        machine: RankMachine,
        link: Link,
        build: Callable[[], Trainee],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine = machine
        self._link = link
        self._build = build
        self._clock = clock
        self._trainee: Trainee | None = None
        self._open = contextlib.ExitStack()
        self._reducing: StartReduce | None = None
        self.code: int | None = None
        """The exit status once it is over."""
        self.error: BaseException | None = None
        """What user code raised and ended this rank."""
        self._steps = 0
        self._should_stop = False

    def run(self) -> int:
        """Train until the machine says that it is over, and return the exit status."""
        with self._open:
            while (batch := self.next_batch()) is not None:
                try:
                    self.take(partial(self._rank.train, batch))
                except _OF_THE_USER as error:
                    self.fail(error, batch)
        assert self.code is not None
        return self.code

    def join(self) -> None:
        """Do what the controller says until this rank is a member of the run, or it is over."""
        while self.code is None and self._machine.state not in GROUPED:
            self._listen()

    def next_batch(self) -> Batch | None:
        """Do what the controller says until there is a batch to train; ``None``: it is over."""
        while self.code is None:
            self._listen()
            batch = self._drawn()
            if batch is not None:
                return batch
        return None

    def take(self, step: Callable[[], BatchDone]) -> bool:
        """Take one step; returns false when it came to nothing, and its batch comes again."""
        try:
            done = step()
        except Interrupted:
            return False
        except CollectiveError as error:
            window = self._rank.plane.last_completed + 1
            self._feed([ReduceFailed(window=window, error=str(error))])
            self._link.wait(_IDLE_S)
            return False
        self._steps += 1
        self._link.progress("run", step=self._steps, batch_ms=done.wall_ms)
        self._feed([done])
        return True

    def settle(self) -> None:
        """Wait for the average that is due at this boundary, if one is."""
        while self.code is None and self._machine.state in _AVERAGING:
            self._listen()

    def stop(self, reason: str) -> None:
        """Ask that the run ends in good order, and train no more until it has."""
        if self.code is None:
            self._link.send(Stop(reason=reason), self._machine.rank.gen)
        while self.code is None:
            self._link.wait(_IDLE_S)
            self._listen()

    def fail(self, error: BaseException, batch: Batch | None = None) -> None:
        """Tell what user code raised, at a batch if it was one's; it ends this rank."""
        self._feed([self._raised(error, batch)])

    def close(self) -> None:
        """Give up what was built. Idempotent."""
        self._open.close()

    def _listen(self) -> None:
        """Take the mail, the average that has arrived, and the time that has passed."""
        may_train = self._trainee is not None and self._machine.may_train
        if not may_train:
            self._link.wait(self._patience())
        is_interrupted = self._link.is_interrupted()
        mail = _without_overtaken(self._link.take())
        if is_interrupted:
            self._leave_reduce()
        self._note_stop(mail)
        self._feed(mail)
        self._look_at_reduce()
        if self._trainee is not None:
            self._feed([CallbackEnded(done=d) for d in self._trainee.callbacks.finished()])
        deadline = self._machine.next_deadline()
        if deadline is not None and self._clock() >= deadline:
            self._feed([Tick()])

    def _note_stop(self, mail: Sequence[RankEvent]) -> None:
        """Let user code see that the run is to end soon."""
        for event in mail:
            self._should_stop |= _is_of(event, Stop)
        if self._trainee is not None:
            self._trainee.worker.should_stop = self._should_stop

    def _patience(self) -> float:
        """Seconds to wait for mail."""
        if self._reducing is not None:
            return _REDUCING_S
        deadline = self._machine.next_deadline()
        return _IDLE_S if deadline is None else min(_IDLE_S, max(0.0, deadline - self._clock()))

    def _feed(self, events: Iterable[RankEvent]) -> None:
        """Give events to the machine and do what it says, until nothing follows from it."""
        waiting = list(events)
        while waiting and self.code is None:
            for command in self._machine.handle(waiting.pop(0), self._clock()):
                waiting += self._carry_out(command)

    def _carry_out(self, command: RankCommand) -> list[RankEvent]:
        """Do what the machine says; return what that comes to.

        What user code raises on the way ends the rank, in the way that the machine knows.
        """
        try:
            return self._do(command)
        except Interrupted:
            return []  # the mail that interrupts says what comes instead
        except _OF_THE_USER as error:
            return [self._raised(error)]

    def _do(self, command: RankCommand) -> list[RankEvent]:  # noqa: PLR0912 - one case a command
        match command:
            case Send():
                self._link.send(command.message, command.gen)
            case Build():
                return [self._built()]
            case FormGroups():
                return [self._formed(command)]
            case TakeState():
                return [self._state_taken(command)]
            case TakeLease():
                self._rank.take_lease(command.lease)
            case DropLeases():
                self._rank.drop_leases()
            case MeasureWindow():
                return [self._rank.measured(command)]
            case StartReduce():
                self._rank.contribute(command)
                self._reducing = command
            case AbandonReduce():
                self._reducing = None
                self._rank.plane.abandon()
            case ApplyCommit():
                self._rank.apply(command.commit)
            case ExecuteCallback():
                done = self._rank.callbacks.run(command.callback, command.work)
                return [CallbackEnded(done=done)]
            case SaveOrphan():
                self._rank.callbacks.save_orphan(command.version)
            case Exit():
                self.code = command.code
        return []

    @property
    def _rank(self) -> Trainee:
        if self._trainee is None:
            raise LookupError("the machine used the trainee before it was built")
        return self._trainee

    def _built(self) -> RankEvent:
        started = self._clock()
        self._trainee = self._build()
        self._open.callback(self._trainee.close)
        self._open.enter_context(self._trainee.training())
        return Built(
            build_ms=(self._clock() - started) * 1000,
            model_sig=self._trainee.model_signature,
            dataset_sig=self._trainee.dataset_signature,
        )

    def _formed(self, command: FormGroups) -> RankEvent:
        started, error = self._clock(), ""
        try:
            self._rank.form(command.world, self._link.store)
        except (FormationError, CollectiveError) as failure:
            error = str(failure)
        ms = (self._clock() - started) * 1000
        return Formed(gen=command.world.gen, ok=not error, ms=ms, error=error)

    def _state_taken(self, command: TakeState) -> RankEvent:
        error, work = "", None
        try:
            work = self._rank.take_state(command.sync)
        except (FormationError, CollectiveError) as failure:
            error = str(failure)
        return StateTaken(gen=command.sync.gen, ok=not error, error=error, work=work)

    def _leave_reduce(self) -> None:
        """Give up the average in progress; one that has arrived by now still counts."""
        if self._reducing is None:
            return
        window, self._reducing = self._reducing.go.window, None
        if self._rank.plane.abandon() == window:
            self._feed([self._taken_over(window)])

    def _look_at_reduce(self) -> None:
        """See whether the average in progress has arrived, and take it over at this boundary."""
        if self._reducing is None:
            return
        plane = self._rank.plane
        progress = plane.poll()
        if progress is Progress.PENDING:
            return
        window, self._reducing = self._reducing.go.window, None
        if progress is Progress.FAILED:
            self._feed([ReduceFailed(window=window, error=str(plane.failure))])
            return
        self._feed([self._taken_over(window)])

    def _taken_over(self, window: int) -> ReduceDone:
        """Write the average that has arrived into the model, and tell of it."""
        plane = self._rank.plane
        plane.commit()
        self._rank.heal()
        outcome = plane.outcome
        return ReduceDone(
            window=window,
            ms=outcome.ms,
            delta=outcome.delta,
            pre_norm=outcome.pre_norm,
            post_norm=outcome.post_norm,
        )

    def _drawn(self) -> Batch | None:
        """Return the next batch; without one, step along with the ranks that have one."""
        rank, batch = self._trainee, None
        if rank is None or self.code is not None or not self._machine.may_train:
            return None
        try:
            batch = rank.next_batch()
            if batch is not None:
                rank.enter(batch)
            elif rank.averages_gradients:
                self.take(rank.follow)
            else:
                self._link.wait(_IDLE_S)
        except Interrupted:
            return None
        except _OF_THE_USER as error:
            self.fail(error, batch)
            return None
        return batch

    @property
    def trainee(self) -> Trainee | None:
        """What was built, ``None`` before."""
        return self._trainee

    def _raised(self, error: BaseException, batch: Batch | None = None) -> Raised:
        self.error = error
        rank, epoch = self._trainee, 0
        ranges: Ranges = ()
        if rank is not None:
            epoch, ranges = rank.worker.current_epoch, rank.position(batch)
        return Raised(error=failure_of(error, epoch=epoch, step=self._steps, ranges=ranges))


def _without_overtaken(mail: Sequence[RankEvent]) -> list[RankEvent]:
    """Leave out generations that are over by what came after them: they can form no more.

    Taken mail interrupts nothing, so this rank would wait for one that is gone.
    """
    ends = [i for i, event in enumerate(mail) if _is_of(event, Reconfigure, Abort)]
    last = ends[-1] if ends else 0
    return [event for i, event in enumerate(mail) if i >= last or not _is_of(event, *_FORMING)]


def _is_of(event: RankEvent, *kinds: type[Message]) -> bool:
    return isinstance(event, FromController) and isinstance(event.message, kinds)
