"""The model, the data and the plane of one rank, and what is done with them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch

from flodl.core.seeding import derive_seed, manual_seed
from flodl.data import Batch, DataLoader
from flodl.data import Lease as DataLease
from flodl.distributed.averaging.gradients import GradientPlane
from flodl.distributed.averaging.parameters import ParameterPlane
from flodl.distributed.averaging.plan import PlaneConfig
from flodl.distributed.collective.control_store import ControlStore
from flodl.distributed.collective.errors import CollectiveError, Interrupted
from flodl.distributed.collective.formation import Formation, Seat
from flodl.distributed.config import Timeouts
from flodl.distributed.lifecycle.rank_events import (
    BatchDone,
    MeasureWindow,
    StartReduce,
    WindowMeasured,
)
from flodl.distributed.protocol.ranges import cut
from flodl.distributed.worker.callbacks import Callbacks
from flodl.distributed.worker.checkpoints.own_state import OwnParts
from flodl.distributed.worker.exchange import GradientExchange
from flodl.distributed.worker.identity import Identity
from flodl.distributed.worker.keeper import Keeper
from flodl.distributed.worker.meter import WindowMeter
from flodl.distributed.worker.optimizer_state import give_optimizer, take_optimizer
from flodl.distributed.worker.own_step import OwnStep
from flodl.distributed.worker.pace import Pace
from flodl.distributed.worker.resume import resume_rank
from flodl.distributed.worker.worker import Worker, call_epoch_fn
from flodl.engine.bundle import find_bundle
from flodl.engine.schedules import made_scheduler
from flodl.engine.step import TrainStep
from flodl.metrics.scalars import ScalarScope

if TYPE_CHECKING:
    from flodl.distributed.collective.store import StoreClient
    from flodl.distributed.lifecycle.work import WorkInHand
    from flodl.distributed.protocol.messages import Commit, Lease, StateSync, World
    from flodl.distributed.protocol.values import Ranges, Telemetry
    from flodl.distributed.worker.job import Job
    from flodl.distributed.worker.witness import Witness


class Trainee:
    """Builds what a rank trains, takes its steps, and times them.

    Args:
        job: What is trained.
        identity: Who this rank is.
        timeouts: Deadlines.
        is_interrupted: Whether to give up what is waited for.
        witness: Tells of the device and its host; closed with the trainee.
    """

    def __init__(
        self,
        job: Job,
        identity: Identity,
        timeouts: Timeouts,
        is_interrupted: Callable[[], bool],
        witness: Witness | None = None,
    ) -> None:
        self._job = job
        self._witness = witness
        self._identity = identity
        self._timeouts = timeouts
        self._is_interrupted = is_interrupted
        manual_seed(derive_seed(job.seed, 0, "weights"))
        self.model = job.built_model(identity.device)
        self.optimizer = job.built_optimizer(self.model)
        self.plane = self._made_plane()
        self._keeper = self._made_keeper() if identity.outlives_ranks else None
        self.scalars = ScalarScope()
        self._exchange: GradientExchange | None = None
        self.step = self._made_step()
        self._loader = DataLoader(
            job.dataset,
            batch_size=job.batch_size,
            device=identity.device,
            seed=derive_seed(job.seed, 0, "order"),
            names=job.names,
            **job.loader,
        )
        self._feed = self._loader.leases()
        self._epochs: dict[int, int] = {}
        self._meter = WindowMeter(self.scalars)
        self._pace = Pace(identity.device)
        self._returned: Batch | None = None
        self._steps_at_measure = 0
        self._told = 0
        """The window that was last measured and has not ended."""
        self._is_poisoned = False
        self._went_on_exactly = False
        self._bundle = None
        if job.resume_from is not None:
            self._bundle = find_bundle(job.resume_from, reads_own_parts=False)
        self._resume()
        self._formation: Formation | None = None
        self.worker = Worker(
            device=identity.device,
            model=self.model,
            optimizer=self.optimizer,
            train_step=self.step,
            scalars=self.scalars,
        )
        self.callbacks = Callbacks(
            job, self.worker, self.plane, identity, lambda: self.dataset_signature
        )
        if self._bundle is not None:
            self.callbacks.keep(self._bundle.stem)
        manual_seed(derive_seed(job.seed, identity.number, "step"))

    def _resume(self) -> None:
        if self._bundle is not None:
            resume_rank(self._bundle, self.step, self.plane.consensus, self.dataset_signature)

    def _made_plane(self) -> ParameterPlane | GradientPlane:
        job = self._job
        config = PlaneConfig.of(
            job.elche,
            outer=job.outer,
            inner_state=job.inner_state,
            has_scaler=job.step.scaler is not None,
            shm_prefix=f"flodl-{self._identity.run}",
            run_dir=self._identity.run_dir,
        )
        if job.elche.payload == "grads":
            return GradientPlane(self.model, config)
        return ParameterPlane(self.model, config, optimizer=self.optimizer)

    def _made_keeper(self) -> Keeper:
        every = self._job.elastic.durable_every or (10 if self._job.elche.mode.is_nccl else 1)
        return Keeper(
            self.plane,
            run=self._identity.run,
            uid=self._identity.uid,
            every=every,
            run_dir=self._identity.run_dir,
        )

    def _made_step(self) -> TrainStep:
        job = self._job
        scheduler = made_scheduler(job.scheduler, self.optimizer, job.ranks)
        config = replace(job.step, scheduler=scheduler)
        if job.quarantines:
            config = replace(config, on_nonfinite="warn", flags_nonfinite=True)
        if isinstance(self.plane, GradientPlane):
            self._exchange = GradientExchange(
                self.plane, self._is_interrupted, self._timeouts.barrier(0.0)
            )
            config = replace(config, reduce=self._exchange, on_nonfinite="skip")
        if job.train_step is None:
            return OwnStep(self.model, self.optimizer, config=config, scalars=self.scalars)
        return TrainStep(
            job.train_step, self.model, self.optimizer, config=config, scalars=self.scalars
        )

    @property
    def model_signature(self) -> str:
        """Equal where models may be averaged."""
        return self.plane.signature

    @property
    def dataset_signature(self) -> str:
        """Equal where ranks may train together."""
        return self._loader.signature()

    # ------------------------------------------------------------ generations

    def form(self, world: World, client: StoreClient) -> None:
        """Form the groups of a generation.

        Raises:
            Interrupted: Something else is to be done first.
            FormationError: A rank did not come.
            CollectiveError: The ranks do not fit together.
        """
        if self._witness is not None:
            self._witness.meet(world)
        places = sorted(world.members, key=lambda place: place.rank)
        own = next(place for place in places if place.uid == self._identity.uid)
        formation = Formation(
            run=self._identity.run,
            nonce=world.nonce,
            generation=world.gen,
            rank=own.rank,
            seats=tuple(Seat(uid=p.uid, rank=p.rank, host=p.host) for p in places),
            topology="two_level" if world.topology == "two_level" else "flat",
            address=own.data_address or "127.0.0.1",
            timeout_s=world.timeouts.get("formation", self._timeouts.formation),
        )
        store = ControlStore(client, timeout_s=formation.timeout_s)
        self.plane.form(formation, store, interrupted=self._is_interrupted)
        self._formation = formation
        if self._keeper is not None:
            self._keeper.is_leader = own.is_leader
        self.worker.rank, self.worker.world_size = own.rank, formation.world_size

    def take_state(self, sync: StateSync) -> WorkInHand | None:
        """Take part in bringing all members to one state.

        Returns:
            The work of the rank that this one goes on as; ``None`` where it has its own.

        Raises:
            Interrupted: Something else is to be done first.
            FormationError: One of them did not come.
            CollectiveError: The transfer failed.
        """
        if sync.source == "exact":
            return self._resume_exactly(sync)
        self._end(sync.version)
        self.step.global_step = sync.global_step
        self.step.set_lr_scale(sync.lr_scale)
        self._steps_at_measure = self.worker.local_step
        if self._formation is None:
            return None
        if sync.source in ("own", "checkpoint"):
            if self._went_on_exactly:  # with members that are not all there any more
                self._went_on_exactly = False
                self._resume()
            if sync.version == 0 or sync.source == "checkpoint":
                # what all start from is what this rank has
                self.plane.synchronize(self._formation.rank, [])
            self.plane.last_completed = max(self.plane.last_completed, sync.version)
            return None
        ranks = {seat.uid: seat.rank for seat in self._formation.seats}
        if sync.source == "durable":
            if self._keeper is None:
                raise CollectiveError(f"no rank is left that has window {sync.version}'s result")
            self._keeper.restore(sync.version)
            return None
        donor = ranks[sync.donor]
        extra = None
        if donor == self._formation.rank and "optimizer" in sync.parts:
            extra = give_optimizer(self.optimizer)
        given = self.plane.synchronize(
            donor,
            [ranks[uid] for uid in sync.receivers],
            extra,
            interrupted=self._is_interrupted,
        )
        if given is not None and given.meta:
            take_optimizer(self.optimizer, given)
        return None

    def _resume_exactly(self, sync: StateSync) -> WorkInHand:
        """Go on as one rank of the checkpoint, with the leases that it had."""
        assert self._bundle is not None
        self._went_on_exactly = True
        own = OwnParts(worker=self.worker, plane=self.plane)
        work = own.load(self._bundle, sync.heirs.index(self._identity.uid))
        self.step.set_lr_scale(sync.lr_scale)
        self.step.global_step = sync.global_step + work.tally.steps
        self._steps_at_measure = self.worker.local_step - work.tally.steps
        for held in work.leases:
            rest = cut(held.lease.ranges, held.trained, held.samples)
            if rest:
                self.take_lease(replace(held.lease, ranges=rest))
        return work

    def apply(self, commit: Commit) -> None:
        """Take over the counters and the learning-rate scale of a committed window."""
        since = self.worker.local_step - self._steps_at_measure
        self.step.global_step = commit.global_step + since
        self.step.set_lr_scale(commit.lr_scale)
        self.worker.current_version = commit.window
        self._end(commit.window)
        if self._keeper is not None:
            self._keeper.after_window(commit.window)

    def _end(self, window: int) -> None:
        """Note that a window counts, and all before it."""
        if self._told <= window:
            self._told = 0

    # ------------------------------------------------------------------- data

    def take_lease(self, lease: Lease) -> None:
        """Put a lease behind those that are held."""
        self._epochs[lease.lease_id] = lease.epoch
        self._feed.assign(
            DataLease(lease_id=lease.lease_id, epoch=lease.data_epoch, ranges=lease.ranges)
        )

    def drop_leases(self) -> None:
        """Forget every lease, and a batch whose step was given up."""
        self._told = 0
        self._returned = None
        self._feed.give_back()
        self._epochs.clear()

    def next_batch(self) -> Batch | None:
        """Return the next batch, or ``None`` when the leases held are done."""
        started = time.perf_counter()
        batch, self._returned = self._returned, None
        if batch is None:
            batch = self._feed.take()
        self._meter.starve_ms += (time.perf_counter() - started) * 1000
        return batch

    # ------------------------------------------------------------------ steps

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Gather losses and scalars of the steps within the block."""
        self.model.train()
        with self.scalars.active(), self.step.reporting_to(self._meter.add):
            yield

    def epoch_of(self, batch: Batch) -> int:
        """Return the epoch of the run that a batch counts for."""
        return self._epochs[cast("int", batch.lease_id)]

    def enter(self, batch: Batch) -> None:
        """Tell the user's function of an epoch, before the first batch of it that is trained."""
        epoch = self.epoch_of(batch)
        if self.worker.enters(epoch) and self._job.epoch_fn is not None:
            call_epoch_fn(self._job.epoch_fn, epoch, self.worker)

    def train(self, batch: Batch) -> BatchDone:
        """Take one step.

        Raises:
            Interrupted: The exchange of gradients was given up; the model is as before, and the
                batch comes again.
            CollectiveError: It failed; likewise.
        """
        return self._trained(batch, lambda: self.step(batch), time.perf_counter())

    def train_given(self, batch: Batch, loss: torch.Tensor, started: float) -> BatchDone:
        """Take the step of a batch whose gradients are there, in a loop of the user's own.

        Args:
            batch: The batch.
            loss: Its loss, of which the gradients are.
            started: Value of ``time.perf_counter`` when the user got the batch.

        Raises:
            Interrupted: As for :meth:`train`.
            CollectiveError: Likewise.
        """
        step = self.step
        assert isinstance(step, OwnStep)
        return self._trained(batch, lambda: step.take(loss), started)

    def put_back(self, batch: Batch) -> None:
        """Have a batch come again, whose step was not taken."""
        self._returned = batch
        if isinstance(self.step, OwnStep):
            self.step.forget_batch()

    def _trained(self, batch: Batch, take: Callable[[], object], started: float) -> BatchDone:
        self._meter.expect(batch.size)
        if self._exchange is not None:
            self._exchange.expect(batch.size)
        self._share_moments()
        try:
            take()
        except (Interrupted, CollectiveError):
            self._meter.forget_last()
            self._returned = batch
            raise
        self._pace.mark()
        spent = (time.perf_counter() - started) * 1000
        self._meter.compute_ms += spent
        self.worker.local_step += 1
        return BatchDone(
            lease_id=cast("int", batch.lease_id),
            samples=batch.size,
            wall_ms=spent,
            is_first=batch.index == 0,
            left_out=self._left_out(),
        )

    def _share_moments(self) -> None:
        moments = self.plane.moments
        if moments is None:
            return
        steps = self.worker.local_step // self._job.step.accumulate
        if moments.follow(world=self.worker.world_size, steps=steps):
            self.step.invalidate("the share of a rank in Adam's moments")

    def _left_out(self) -> int:
        """Return how many of the last batches no rank stepped with."""
        if self._exchange is None or not self._exchange.is_left_out:
            return 0
        return self._job.step.accumulate

    @property
    def averages_gradients(self) -> bool:
        """Whether ranks step together."""
        return self._exchange is not None

    def follow(self) -> BatchDone:
        """Take the step of ranks that have a batch, without one.

        Raises:
            Interrupted: Something else is to be done first.
            CollectiveError: A rank is gone.
        """
        assert self._exchange is not None
        self._exchange.expect(0)
        started = time.perf_counter()
        self.step.follow()
        self._pace.mark()
        self.worker.local_step += 1
        return BatchDone(
            lease_id=0,
            samples=0,
            wall_ms=(time.perf_counter() - started) * 1000,
            is_first=True,
            left_out=int(self._exchange.is_left_out),
        )

    def measured(self, command: MeasureWindow) -> WindowMeasured:
        """Put aside what is to be averaged, and say what was measured.

        What was said of a window that has not ended, or came to nothing, is said again with it.
        """
        if self._told:
            self._meter.put_back()
        self._told = 0 if command.payload == "grads" else command.window
        telemetry = self.telemetry()
        is_finite = self._is_finite()
        plane = self.plane
        if isinstance(plane, ParameterPlane):
            is_finite = plane.snapshot(command.window).is_finite and is_finite
        self._steps_at_measure = self.worker.local_step
        self._is_poisoned = not is_finite
        return WindowMeasured(
            window=command.window,
            is_finite=is_finite,
            payload_hash=plane.payload_hash().text,
            telemetry=telemetry,
        )

    def contribute(self, command: StartReduce) -> None:
        """Begin the average of a window, with this rank's share of the work.

        Raises:
            CollectiveError: There is nothing to average, or nothing to average over.
        """
        if isinstance(self.plane, GradientPlane):
            raise CollectiveError("gradients are averaged by the steps, not at a window's end")
        if self._told and self._identity.uid in command.go.late:
            self._meter.put_back()
            self._told = 0
        self.plane.contribute(command.go.window, command.weight)

    @torch.no_grad()
    def heal(self) -> None:
        """Reset the optimizer's state after a window that was not finite, in place."""
        if not self._is_poisoned:
            return
        self._is_poisoned = False
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    value.zero_()
        if self.plane.moments is not None:
            self.plane.moments.restart()

    def telemetry(self) -> Telemetry:
        """Return what was measured since the last time."""
        self.step.flush()
        return self._meter.take(self.step.current_lr)

    def _is_finite(self) -> bool:
        """Whether every loss since the last window was finite; waits for the GPU."""
        bad, job = self.step.bad_batches, self._job
        is_told = job.quarantines or (self.averages_gradients and job.step.on_nonfinite == "raise")
        if bad is None or not is_told:
            return True
        count = int(bad.item())
        bad.zero_()
        return count == 0

    def position(self, batch: Batch | None) -> Ranges:
        """Return where the samples of a batch stand in their epoch's order."""
        return () if batch is None or batch.ranges is None else tuple(batch.ranges)

    def close(self) -> None:
        """End threads and groups."""
        if self._witness is not None:
            self._witness.close()
        self.callbacks.close()
        self._loader.close()
        if self._keeper is not None:
            self._keeper.wait()
        self.plane.close()
