"""Runs processes as ranks, as a program's own run does, with faults that are signals."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn

from flodl.core.errors import ConfigError, FlodlError, RunInterrupted
from flodl.data import Batch, BatchDataSet, DataSet
from flodl.distributed.cluster.role import Role, RunPlace, place_of, role_of
from flodl.distributed.config import ElasticConfig, ElCheConfig
from flodl.distributed.controller.commands import Finish
from flodl.distributed.hostd.options import HostOptions
from flodl.distributed.launch import local
from flodl.distributed.launch.processes import start_daemon
from flodl.distributed.launch.run_folder import RunFolder
from flodl.distributed.launch.threads.link import point_of
from flodl.distributed.lifecycle.rank_events import FromController
from flodl.distributed.protocol.messages import AtBarrier, Message, Reduced
from flodl.distributed.worker.link import Mail, RankLink
from flodl.engine.config import ModelFactory, OptimFactory, TrainStepFn
from flodl.testing.sim.faults import Delay, Delays, Fault, Injector, Profile
from flodl.testing.sim.links import SlowLink
from flodl.testing.sim.outsiders import Relay, knock
from flodl.testing.sim.run import SimResult, with_faults
from flodl.trainer.builder import Trainer
from flodl.trainer.config import TrainerConfig
from flodl.trainer.ranks import launcher
from flodl_sys import names

_STOP_S = 10.0


def run_processes(  # noqa: PLR0913 - the settings of a run
    count: int,
    model_factory: ModelFactory,
    optim_factory: OptimFactory,
    train_step: TrainStepFn,
    dataset: DataSet | BatchDataSet,
    *,
    batch_size: int,
    num_epochs: int,
    elche: ElCheConfig,
    delay_ms: Sequence[float | Profile] = (),
    jitter: float = 0.0,
    link: SlowLink | None = None,
    faults: Sequence[Fault] = (),
    elastic: ElasticConfig | None = None,
    seed: int = 42,
    lr_scale_ratio: float = 0.0,
    options: Mapping[str, Any] | None = None,
    limit_s: float = 120.0,
) -> SimResult:
    """Train with ``count`` ranks that are processes on the CPU, and return how it went.

    Controller, host daemon and ranks are started as ``launch="spawn"`` starts them, so what they
    need must be picklable. A rank that is killed or stopped is by a signal that it sends itself.

    Args:
        count: Ranks.
        model_factory: As for ``Trainer``.
        optim_factory: As for ``Trainer``.
        train_step: As for ``Trainer``; faults of the kinds "exception", "oom" and "nan" happen in
            it.
        dataset: As for ``Trainer``.
        batch_size: Samples per step and rank.
        num_epochs: Passes over the data.
        elche: When and how ranks average.
        delay_ms: How much longer each batch of a rank takes, or that by the seconds since its
            first batch; missing ones 0.
        jitter: Share by which each delay is longer or shorter, at random by ``seed``.
        link: The network between the ranks; ``None`` is that of the machine.
        faults: What goes wrong, and when. One at ``"form:1"`` is too early: ranks learn of faults
            as they build their model. What a rank that is killed has said last may be lost.
        elastic: Whether ranks that die are started again, and the like; by default they are not.
        seed: Base of all random streams.
        lr_scale_ratio: As for ``Trainer``.
        options: Further fields of ``TrainerConfig``.
        limit_s: Seconds after which the run is given up.

    Raises:
        ConfigError: Of a launcher that is killed and a link that is dropped, one is possible.
        TimeoutError: The run did not end in time; nothing of it is left.
        LaunchError: Something cannot be pickled.
    """
    kinds = {fault.kind for fault in faults}
    if {"launcher_kill", "drop_link"} <= kinds:
        raise ConfigError(
            "kind='launcher_kill' and kind='drop_link': the launcher holds the link",
            hint="let them happen in two runs",
        )
    with tempfile.TemporaryDirectory(prefix="flodl-sim-") as folder:
        stage = Stage(tuple(faults), Delays(tuple(delay_ms), jitter, seed), link, folder)
        settings = {
            "dataset": dataset,
            "batch_size": batch_size,
            "num_epochs": num_epochs,
            "seed": seed,
            "devices": ["cpu"] * count,
            "launch": "spawn",
            "elche": elche,
            "elastic": ElasticConfig(respawn=0) if elastic is None else elastic,
            "lr_scale_ratio": lr_scale_ratio,
            **(options or {}),
        }
        play = _Play(
            _Model(model_factory, stage), optim_factory, _Step(train_step, stage), settings, limit_s
        )
        if "launcher_kill" in kinds:
            result = _by_other_launchers(play, Path(folder))
        elif "drop_link" in kinds:
            with _relayed(Path(folder)):
                result = play()
        else:
            result = play()
        result.refusals = Notes(Path(folder)).refusals
        return result


@dataclass(frozen=True, slots=True)
class _Play:
    """A run as a launcher carries it out; it can be sent to another process."""

    model: _Model
    optimizer: OptimFactory
    step: _Step
    settings: Mapping[str, Any]
    limit_s: float

    def __call__(self) -> SimResult:
        evals: dict[int, dict[str, float]] = {}
        alerts: list[tuple[str, str]] = []
        told = {"eval_result_fn": evals.__setitem__} if "eval_fn" in self.settings else {}
        config = TrainerConfig(**{**told, **self.settings})
        with _alerts_into(alerts):
            handle = Trainer.run(self.model, self.optimizer, self.step, config)
            error: FlodlError | None = None
            state: dict[str, torch.Tensor] = {}
            is_partial = False
            try:
                trained = handle.join(self.limit_s)
                state, is_partial = trained.state_dict(), trained.partial
            except TimeoutError:
                handle.abort()
                with suppress(FlodlError, RunInterrupted):
                    handle.join(_STOP_S)
                raise
            except FlodlError as raised:
                error = raised
        return SimResult(
            finish=Finish(
                reason="done" if error is None else str(error),
                is_failed=error is not None,
                is_partial=is_partial,
                report=dict(handle.report.details),
            ),
            metrics=list(handle.metrics()),
            evals=evals,
            alerts=alerts,
            state=state,
            error=error,
        )


def _by_other_launchers(play: _Play, folder: Path) -> SimResult:
    """Carry out a run by a process of its own; when that is killed, another one takes it up.

    Raises:
        RuntimeError: A launcher ended without a result.
    """
    context, name = multiprocessing.get_context("spawn"), ""
    while True:
        near, far = context.Pipe(duplex=False)
        process = context.Process(target=_launch, args=(play, name, far))
        process.start()
        far.close()
        try:
            outcome: SimResult | Exception = pickle.loads(near.recv_bytes())  # noqa: S301 - our own
        except EOFError:
            process.join()
            if process.exitcode == -signal.SIGKILL and not name:
                name = Notes(folder).run_dir
                continue
            raise RuntimeError(f"a launcher ended with status {process.exitcode}") from None
        process.join()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def _launch(play: _Play, attach: str, answers: Connection) -> None:
    """Be a launcher, and send what comes of the run.

    As bytes: a tensor that is sent as such needs its sender to live on.
    """
    if attach:
        os.environ[names.ATTACH.name] = attach
    try:
        outcome: SimResult | Exception = play()
    except Exception as error:  # noqa: BLE001 - the caller raises it
        outcome = error
    answers.send_bytes(pickle.dumps(outcome))


@contextmanager
def _relayed(folder: Path) -> Iterator[None]:
    """Have the host daemon of the next run reach its controller through a relay."""
    with ExitStack() as stack:

        def relayed(options: HostOptions) -> subprocess.Popen[bytes]:
            address = stack.enter_context(Relay(folder).to(options.address))
            return start_daemon(replace(options, address=address))

        vars(local)["start_daemon"] = relayed
        stack.callback(vars(local).update, start_daemon=start_daemon)
        yield


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def _alerts_into(alerts: list[tuple[str, str]]) -> Iterator[None]:
    """Keep the alerts that the launcher of a run logs."""

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            code = getattr(record, "alert", None)
            if code is not None:
                alerts.append((code, record.getMessage()))

    logger, keeper = logging.getLogger(launcher.__name__), Keeper(logging.INFO)
    logger.addHandler(keeper)
    try:
        yield
    finally:
        logger.removeHandler(keeper)


@dataclass(frozen=True, slots=True)
class Stage:
    """What every rank must know: the faults, the delays, the network, and where notes are kept."""

    faults: tuple[Fault, ...]
    delays: Delays
    link: SlowLink | None
    folder: str

    def enter(self) -> Injector | None:
        """Let the faults happen in this process; ``None`` where it is no rank."""
        if role_of() is not Role.RANK:
            return None
        if self.folder not in _entered:
            place = place_of()
            delay = self.delays.of(place.number)
            injector = ProcessInjector(place, self.faults, delay, Notes(Path(self.folder)))
            _watch_link(injector)
            if self.link is not None:
                self.link.applied().__enter__()  # as long as the process lives
            _entered[self.folder] = injector
        return _entered[self.folder]


_entered: dict[str, Injector] = {}


class _Model:
    """The user's model factory, in a rank whose faults happen."""

    def __init__(self, factory: ModelFactory, stage: Stage) -> None:
        self._factory, self._stage = factory, stage

    def __call__(self, device: torch.device) -> nn.Module:
        self._stage.enter()
        return self._factory(device)


class _Step:
    """The user's step, in a rank whose faults happen."""

    def __init__(self, step: TrainStepFn, stage: Stage) -> None:
        self._step, self._stage = step, stage
        self._faulty: TrainStepFn | None = None

    def __call__(self, model: nn.Module, batch: Batch) -> Any:
        if self._faulty is None:
            injector = self._stage.enter()
            self._faulty = self._step if injector is None else with_faults(self._step, injector)
        return self._faulty(model, batch)

    def __getstate__(self) -> tuple[TrainStepFn, Stage]:
        return self._step, self._stage

    def __setstate__(self, state: tuple[TrainStepFn, Stage]) -> None:
        self._step, self._stage = state
        self._faulty = None  # what a rank has made of it stays with the rank


class Notes(set[Fault]):
    """Faults that have happened, for all processes of a run: each is an empty file.

    Args:
        folder: Where the files are.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _file(self, fault: object) -> Path:
        assert isinstance(fault, Fault)
        return self._folder / f"{fault.rank}-{fault.at}-{fault.kind}"

    def __contains__(self, fault: object) -> bool:
        return self._file(fault).exists()

    def add(self, fault: Fault) -> None:
        """Note that one happens."""
        self._file(fault).touch()

    def stall_link(self, seconds: float) -> None:
        """Have the relay hold back what host and controller say."""
        made = self._folder / f"stalling-{time.monotonic_ns()}"
        made.write_text(str(seconds))
        made.rename(self._folder / made.name.replace("stalling", "stalled"))

    def refused(self, kind: str, code: str) -> None:
        """Note how a caller was refused."""
        (self._folder / f"refused-{time.monotonic_ns()}").write_text(f"{kind} {code}")

    @property
    def run_dir(self) -> str:
        """Folder of the run, once its launcher is to be killed."""
        return (self._folder / "run_dir").read_text()

    @run_dir.setter
    def run_dir(self, value: str) -> None:
        (self._folder / "run_dir").write_text(value)

    @property
    def refusals(self) -> list[tuple[str, str]]:
        """Kind of fault and code of each refusal, in order."""
        files = sorted(self._folder.glob("refused-*"))
        return [(kind, code) for kind, code in (file.read_text().split() for file in files)]


class ProcessInjector(Injector):
    """Lets the faults of a rank that is a process happen, in its main thread.

    Args:
        place: The rank's place in the run.
        faults: All faults of the run.
        delay: How much longer each batch of this rank takes.
        notes: Faults that have happened, and what came of them.
    """

    def __init__(
        self, place: RunPlace, faults: Sequence[Fault], delay: Delay, notes: Notes
    ) -> None:
        super().__init__(place.number, faults, delay, notes)
        self._place, self._notes = place, notes
        self._folder = RunFolder(Path(place.run_dir))

    def _happen(self, fault: Fault) -> Fault | None:
        match fault.kind:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                _stop(fault.seconds)
            case "controller_kill":
                os.kill(self._folder.read_record().controller_pid, signal.SIGKILL)
            case "launcher_kill":
                self._notes.run_dir = str(self._folder.path)
                os.kill(_parent_of(self._folder.read_record().controller_pid), signal.SIGKILL)
            case "drop_link":
                assert fault.seconds is not None
                self._notes.stall_link(fault.seconds)
            case "dup_join" | "bad_token":
                code = knock(fault.kind, self._place, self._folder.read_record())
                self._notes.refused(fault.kind, code)
            case "slow":
                self._slower_s += fault.delay_ms / 1000
        return fault


def _stop(seconds: float | None) -> None:
    """Freeze this process, for good or for some seconds."""
    pid = os.getpid()
    if seconds is None:
        os.kill(pid, signal.SIGSTOP)
        return
    with subprocess.Popen(["/bin/sh", "-c", f"sleep {seconds:.3f}; kill -CONT {pid}"]) as waker:
        os.kill(pid, signal.SIGSTOP)
        waker.wait(_STOP_S)


def _watch_link(injector: Injector) -> None:
    """Have the rank of this process come to the points that its messages are."""
    take: Callable[[RankLink], list[Mail]] = RankLink.take
    send: Callable[[RankLink, Message, int], None] = RankLink.send

    def taking(link: RankLink) -> list[Mail]:
        mail = take(link)
        for each in mail:
            point = point_of(each.message) if isinstance(each, FromController) else None
            if point is not None:
                injector.reach(point)
        return mail

    def sending(link: RankLink, message: Message, gen: int = 0) -> None:
        point = point_of(message)
        if point is not None and isinstance(message, AtBarrier):
            injector.reach(point)
        send(link, message, gen)
        if point is not None and isinstance(message, Reduced):
            injector.reach(point)

    for name, method in (("take", taking), ("send", sending)):
        setattr(RankLink, name, method)  # in this process alone
