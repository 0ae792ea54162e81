"""What was asked for, as controller and ranks need it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flodl.core.errors import ConfigError
from flodl.distributed.config import ElCheConfig, Timeouts
from flodl.distributed.controller.core import Controller
from flodl.distributed.controller.ledger import WorkPlan
from flodl.distributed.controller.meta import checkpoint_meta
from flodl.distributed.controller.settings import DutyRules, JoinRules, NonFiniteRule, RunSettings
from flodl.distributed.protocol.values import Device
from flodl.distributed.worker.job import Job
from flodl.engine.bundle import find_bundle
from flodl.engine.config import ModelFactory, OptimFactory, TrainStepFn
from flodl.trainer.checkpoints import writable_stem
from flodl.trainer.config import TrainerConfig, checkpoint_epochs
from flodl_sys import names


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The user's objects and settings of one run.

    Attributes:
        model_factory: ``device -> module``.
        optim_factory: ``parameters -> optimizer``.
        train_step: ``(model, batch) -> loss``; ``None`` where the loop is the user's own.
        config: Validated settings.
    """

    model_factory: ModelFactory
    optim_factory: OptimFactory
    train_step: TrainStepFn | None
    config: TrainerConfig

    def elche(self, *, on_gpu: bool) -> ElCheConfig:
        """Return how ranks average, where nothing else was asked for."""
        given = self.config.elche
        if given is None:
            return ElCheConfig.nccl_cadence() if on_gpu else ElCheConfig.cpu_cadence()
        if not on_gpu and given.mode.is_nccl and given.collective == "nccl":
            raise ConfigError(
                f"elche mode {given.mode}: its averages are made on GPUs, and the ranks have none",
                hint='use a cpu mode, or collective="gloo" for the same on the CPU',
            )
        return given

    def timeouts(self) -> Timeouts:
        """Return the deadlines.

        What a loop of the user's own does beside its steps, a validation for instance, may take as
        long as a step anywhere.
        """
        grace = self.config.elastic.controller_grace
        usual = Timeouts(controller_grace=grace).scaled_by(names.NET_TIMEOUT_SCALE.get())
        if self.train_step is not None:
            return usual
        patience = usual.stall
        return replace(usual, drain=patience, terminate=patience, barrier_floor=patience)

    def job(self, ranks: int, *, on_gpu: bool) -> Job:
        """Return what a rank trains."""
        config = self.config
        assert config.dataset is not None
        assert config.batch_size is not None
        assert config.num_epochs is not None
        return Job(
            model_factory=self.model_factory,
            optim_factory=self.optim_factory,
            train_step=self.train_step,
            dataset=config.dataset,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            seed=config.seed,
            elche=self.elche(on_gpu=on_gpu),
            elastic=config.elastic,
            step=config.step_config(),
            scheduler=config.scheduler,
            ranks=ranks,
            loader=self._loader_options(),
            names=config.loader.names,
            outer=config.outer_optimizer,
            inner_state=config.inner_state,
            quarantines=self.nonfinite_rule == "quarantine",
            epoch_fn=config.epoch_fn,
            checkpoint_fn=config.checkpoint_fn,
            eval_fn=config.eval_fn,
            eval_dataset=config.eval_dataset,
            save_path=None if config.save_path is None else Path(config.save_path),
            checkpoint_keep=config.checkpoint_keep,
            resume_from=None if config.resume_from is None else Path(config.resume_from),
        )

    @property
    def nonfinite_rule(self) -> NonFiniteRule:
        """What a loss that is not finite does, with ranks."""
        return "quarantine" if self.config.on_nonfinite is None else self.config.on_nonfinite

    def settings(self, devices: tuple[Device, ...], nonce: str, *, on_gpu: bool) -> RunSettings:
        """Return what the controller decides by.

        Raises:
            ConfigError: The data set is too small for the batches, or a setting fits no rank.
        """
        config = self.config
        assert config.dataset is not None
        assert config.batch_size is not None
        assert config.num_epochs is not None
        plan = WorkPlan(
            samples=len(config.dataset) * config.augment,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            drop_last=config.loader.drop_last,
            splits=config.epoch_splits,
        )
        duties = DutyRules(
            eval_every=config.eval_every if config.eval_fn is not None else None,
            eval_parallel=config.eval_parallel,
            checkpoint_every=config.checkpoint_every,
            checkpoint_every_windows=config.checkpoint_every_windows,
            checkpoint_at_epochs=tuple(checkpoint_epochs(config)),
            checkpoint_mode=config.checkpoint_mode,
            has_checkpoint_fn=config.checkpoint_fn is not None,
            save_path=None if config.save_path is None else str(config.save_path),
            policy_rank=config.epoch_callback_policy.number,
        )
        return RunSettings(
            plan=plan,
            elche=self.elche(on_gpu=on_gpu),
            nonce=nonce,
            elastic=config.elastic,
            timeouts=self.timeouts(),
            join=JoinRules(least=len(devices), target=len(devices)),
            duties=duties,
            is_durable=True,
            on_nonfinite=self.nonfinite_rule,
            max_failures=config.max_failures,
            oom_policy=config.oom_policy,
            exact_strict=config.exact_strict,
            lr_scale_ratio=config.lr_scale_ratio,
        )

    def resume_meta(self, settings: RunSettings) -> dict[str, Any] | None:
        """Return what the checkpoint says that the run goes on from; ``None`` without one.

        Raises:
            CheckpointError: There is none where one was named, or it is not whole.
        """
        if self.config.resume_from is None:
            return None
        meta = find_bundle(self.config.resume_from).meta
        return meta if "ledger" in meta else _of_one_device(meta, settings)

    def check_places(self, ranks: int) -> None:
        """Check, before any process starts, what the run reads and writes.

        Args:
            ranks: How many it starts with.

        Raises:
            CheckpointError: There is nothing to go on from, or it is not whole.
            ConfigError: ``save_path`` cannot be written, or the checkpoint is of another number of
                ranks where that matters.
        """
        config = self.config
        if config.save_path is not None:
            writable_stem(Path(config.save_path))
        ratios = None if config.elche is None else config.elche.partition_ratios
        if ratios is not None and len(ratios) != ranks:
            raise ConfigError(
                f"partition_ratios={ratios}: {len(ratios)} ratios for {ranks} ranks",
                hint="give one for each rank, or none",
            )
        if config.resume_from is None:
            return
        meta = find_bundle(config.resume_from).meta
        saved = len(meta.get("members", ()))
        if config.exact_strict and ("exact" not in meta or saved != ranks):
            found = f"an exact one of {saved} ranks" if "exact" in meta else "not an exact one"
            raise ConfigError(
                f"resume_from={str(config.resume_from)!r} with exact_strict and {ranks} ranks: "
                f"the checkpoint is {found}",
                hint="start as many ranks, or leave out exact_strict",
            )

    def _loader_options(self) -> dict[str, Any]:
        options = self.config.loader.options()
        return {name: value for name, value in options.items() if name not in _OF_THE_JOB}


def _of_one_device(meta: dict[str, Any], settings: RunSettings) -> dict[str, Any]:
    """Return the meta of a checkpoint that one device wrote, as several ranks go on from it."""
    run = Controller(settings).run
    fresh = checkpoint_meta(run, "checkpoint")
    counters = {"next_epoch": meta["epoch"], "global_step": meta["global_step"], "window": 1}
    return {**fresh, **counters}


_OF_THE_JOB = ("names", "drop_last")
"""Options of the loader that leases decide, or that stand elsewhere."""
