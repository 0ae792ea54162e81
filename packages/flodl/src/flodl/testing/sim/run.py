"""Runs threads as ranks under the real controller, from hello to the end."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flodl.checkpoint import checkpoint_info, load_checkpoint
from flodl.core.errors import ConfigError, FlodlError
from flodl.data import Batch, BatchDataSet, DataSet
from flodl.distributed.config import ElasticConfig, ElCheConfig, Timeouts
from flodl.distributed.controller.commands import (
    Command,
    Finish,
    PublishEpoch,
    PublishEval,
    RaiseAlert,
)
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.events import Event
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.settings import DutyRules, JoinRules, RunSettings
from flodl.distributed.launch.threads.director import Director
from flodl.distributed.launch.threads.host import ThreadHost
from flodl.distributed.launch.threads.link import Gate
from flodl.distributed.protocol.messages import CheckpointMode
from flodl.distributed.worker.job import Job
from flodl.distributed.worker.loop import RankLoop
from flodl.engine.bundle import find_bundle
from flodl.engine.config import ModelFactory, OptimFactory, StepConfig, TrainStepFn
from flodl.metrics.epoch import EpochMetrics
from flodl.testing.sim.clock import Clock
from flodl.testing.sim.faults import OF_PROCESSES, Delays, Fault, Injector, Profile
from flodl.testing.sim.links import SlowLink
from flodl.testing.sim.own_loop import LoopFn, raise_fault, run_own_loop


@dataclass(kw_only=True, slots=True)
class SimResult:
    """How a simulated run went.

    Attributes:
        finish: The controller's last word.
        metrics: Of each epoch.
        evals: Results of evaluations by epoch.
        alerts: Codes and texts of alerts, in order.
        state: Parameters and buffers at the end; empty where the run failed.
        models: The parameters that each rank held when it ended, by its number; empty where ranks
            were processes.
        error: What ``join()`` raised, where ranks were processes.
        refusals: Kind of fault and code of the refusal, for each caller that was not let in.
    """

    finish: Finish
    metrics: list[EpochMetrics] = field(default_factory=list)
    evals: dict[int, dict[str, float]] = field(default_factory=dict)
    alerts: list[tuple[str, str]] = field(default_factory=list)
    state: dict[str, Tensor] = field(default_factory=dict)
    models: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    error: FlodlError | None = None
    refusals: list[tuple[str, str]] = field(default_factory=list)

    @property
    def accounting(self) -> Sequence[Mapping[str, Any]]:
        """The account of each epoch."""
        accounts: Any = self.finish.report["accounting"]
        return accounts  # type: ignore[no-any-return] # the controller's own


def run_threads(  # noqa: PLR0913 - the settings of a run
    count: int,
    model_factory: ModelFactory,
    optim_factory: OptimFactory,
    train_step: TrainStepFn | None,
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
    timeouts: Timeouts | None = None,
    drop_last: bool = True,
    seed: int = 42,
    options: Mapping[str, Any] | None = None,
    lr_scale_ratio: float = 0.0,
    eval_every: int | None = None,
    save_path: Path | None = None,
    checkpoint_every: int | None = None,
    checkpoint_every_windows: int | None = None,
    checkpoint_mode: CheckpointMode = "full",
    exact_strict: bool = False,
    resume_from: Path | None = None,
    on_nonfinite: Any = "quarantine",
    oom_policy: Any = "split",
    max_failures: int | None = None,
    loop: LoopFn | None = None,
    clock: Callable[[], float] | None = None,
    limit_s: float = 120.0,
) -> SimResult:
    """Train with ``count`` ranks that are threads of this process, and return how it went.

    Args:
        count: Ranks.
        model_factory: As for ``Trainer``.
        optim_factory: As for ``Trainer``.
        train_step: As for ``Trainer``; faults of the kinds "exception", "oom" and "nan" happen in
            it. ``None`` with ``loop``.
        dataset: Shared by all ranks.
        batch_size: Samples per step and rank.
        num_epochs: Passes over the data.
        elche: When and how ranks average.
        delay_ms: How much longer each batch of a rank takes, or that by the seconds since its
            first batch; missing ones 0.
        jitter: Share by which each delay is longer or shorter, at random by ``seed``.
        link: The network between the ranks; ``None`` is as fast as this process.
        faults: What goes wrong, and when.
        elastic: Whether ranks that die are started again (``respawn``), and the like.
        timeouts: Deadlines.
        drop_last: Leave out samples that fill no batch.
        seed: Base of all random streams.
        options: Further fields of ``Job``.
        lr_scale_ratio: As for ``Trainer``.
        eval_every: Epochs between evaluations; ``options`` then hold ``eval_fn`` and its data.
        save_path: Stem of checkpoints.
        checkpoint_every: Epochs between checkpoints.
        checkpoint_every_windows: Averages between checkpoints.
        checkpoint_mode: As for ``Trainer``.
        exact_strict: As for ``Trainer``.
        resume_from: Checkpoint to go on from.
        on_nonfinite: As for ``Trainer``.
        oom_policy: As for ``Trainer``.
        max_failures: As for ``Trainer``.
        loop: What stands in the ``with`` block of ``into_worker()``, as a function of the worker,
            which each rank calls; the faults then happen in ``worker.step``.
        clock: Seconds by which deadlines run out, such as a ``Clock`` that is fast; by default
            those of the machine.
        limit_s: Seconds after which the run is given up.

    Raises:
        ConfigError: A fault needs processes.
        TimeoutError: The run did not end in time.
    """
    for fault in faults:
        if fault.kind in OF_PROCESSES:
            raise ConfigError(
                f"kind={fault.kind!r}: threads have no sockets, and no processes but this one",
                hint="use run_processes",
            )
    elastic = ElasticConfig(respawn=0) if elastic is None else elastic
    timeouts = Timeouts() if timeouts is None else timeouts
    length: int = len(dataset)
    meta = None if resume_from is None else find_bundle(resume_from).meta
    settings = RunSettings(
        plan=WorkPlan(
            samples=length, batch_size=batch_size, num_epochs=num_epochs, drop_last=drop_last
        ),
        elche=elche,
        nonce="sim",
        elastic=elastic,
        timeouts=timeouts,
        join=JoinRules(least=count, target=count),
        duties=DutyRules(
            eval_every=eval_every,
            checkpoint_every=checkpoint_every,
            checkpoint_every_windows=checkpoint_every_windows,
            checkpoint_mode=checkpoint_mode,
            has_checkpoint_fn="checkpoint_fn" in (options or {}),
            save_path=None if save_path is None else str(save_path),
        ),
        on_nonfinite=on_nonfinite,
        oom_policy=oom_policy,
        max_failures=max_failures,
        lr_scale_ratio=lr_scale_ratio,
        exact_strict=exact_strict,
    )
    job = Job(
        model_factory=model_factory,
        optim_factory=optim_factory,
        train_step=train_step,
        dataset=dataset,
        batch_size=batch_size,
        num_epochs=num_epochs,
        seed=seed,
        elche=elche,
        elastic=elastic,
        step=StepConfig(splits_oom=oom_policy == "split"),
        quarantines=on_nonfinite == "quarantine",
        save_path=save_path,
        resume_from=resume_from,
        ranks=count,
        **(options or {}),
    )
    with tempfile.TemporaryDirectory(prefix="flodl-sim-") as folder:
        controller = Controller(settings) if meta is None else Controller.resumed(settings, meta)
        delays = Delays(delay_ms, jitter=jitter, seed=seed)
        run = _Sim(controller, job, count, delays, faults, Path(folder), loop, clock or Clock())
        with contextlib.nullcontext() if link is None else link.applied():
            return run.until_over(limit_s)


class _Sim:
    """The controller's loop, and what it publishes."""

    def __init__(
        self,
        controller: Controller,
        job: Job,
        count: int,
        delays: Delays,
        faults: Sequence[Fault],
        folder: Path,
        loop: LoopFn | None,
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._loop = loop
        self._job = job
        self._count = count
        self._faults = faults
        self._happened: set[Fault] = set()
        self._delays = delays
        self._result: SimResult | None = None
        self._metrics: list[EpochMetrics] = []
        self._evals: dict[int, dict[str, float]] = {}
        self._alerts: list[tuple[str, str]] = []
        self._settings = controller.run.settings
        self._director = Director(controller, self._made_host, self._publish, clock)

    def _made_host(self, post: Callable[[Event], None]) -> ThreadHost:
        return ThreadHost(
            run="sim",
            job=self._job_of,
            gate=lambda n: Injector(n, self._faults, self._delays.of(n), self._happened),
            count=self._count,
            post=post,
            timeouts=self._settings.timeouts,
            run_dir=self._folder,
            respawn=self._settings.elastic.respawn,
            drive=self._drive,
        )

    def _drive(self, loop: RankLoop, gate: Gate) -> int:
        if self._loop is None:
            return loop.run()
        assert isinstance(gate, Injector)
        return run_own_loop(loop, self._loop, gate)

    def until_over(self, limit_s: float) -> SimResult:
        give_up = time.monotonic() + limit_s
        host = self._director.host
        host.hello()
        try:
            while self._result is None:
                if time.monotonic() > give_up:
                    state = self._director.core.state
                    raise TimeoutError(f"the run is {state} after {limit_s:g} s: {self._alerts}")
                self._director.turn()
        finally:
            models = {
                number: {n: p.detach().clone() for n, p in trainee.model.state_dict().items()}
                for number, trainee in host.trainees.items()
            }
            host.end()
        self._result.models = models
        return self._result

    def _publish(self, command: Command) -> None:
        match command:
            case PublishEpoch():
                self._metrics.append(command.metrics)
            case PublishEval():
                self._evals[command.epoch] = command.values
            case RaiseAlert():
                self._alerts.append((command.code, command.message))
            case Finish():
                self._result = SimResult(
                    finish=command,
                    metrics=self._metrics,
                    evals=self._evals,
                    alerts=self._alerts,
                    state=read_tensors(self._folder / "final.fdl"),
                )

    def _job_of(self, _number: int, gate: Gate) -> Job:
        step = self._job.train_step
        if step is None:
            return self._job
        assert isinstance(gate, Injector)
        return replace(self._job, train_step=with_faults(step, gate))


def with_faults(train_step: TrainStepFn, injector: Injector) -> TrainStepFn:
    """Return a step function in which the faults of a rank happen."""

    def step(model: nn.Module, batch: Batch) -> Any:
        fault = injector.step()
        result = train_step(model, batch)
        raise_fault(fault)
        if fault is not None and fault.kind == "nan":
            loss = result[0] if isinstance(result, tuple) else result
            return loss * float("nan")
        return result

    return step


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint; nothing where there is none."""
    if not file.is_file():
        return {}
    info = checkpoint_info(file)
    tensors = {
        name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in info.tensors.items()
    }
    load_checkpoint(file, tensors, check_hash=False)
    return tensors
