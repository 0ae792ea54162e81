"""What ``run()`` does in a rank: train what it is told to, then end the process."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from flodl.device.info import parse_device
from flodl.distributed.launch.child import rank_link
from flodl.distributed.lifecycle.rank import RankMachine
from flodl.distributed.protocol.messages import AlertRaised, LogLine, TelemetryRecord
from flodl.distributed.worker.identity import Identity
from flodl.distributed.worker.link import RankLink
from flodl.distributed.worker.loop import RankLoop
from flodl.distributed.worker.trainee import Trainee
from flodl.distributed.worker.witness import Witness
from flodl.distributed.worker.worker import EpochFn, Worker, call_epoch_fn
from flodl.trainer.ranks.costs import costs, timed_kind
from flodl.trainer.ranks.introduction import introduce
from flodl.trainer.ranks.offer import RunOffer
from flodl.trainer.ranks.spec import RunSpec
from flodl.trainer.step_notes import StepNotes


def be_rank(spec: RunSpec) -> int:
    """Train as the rank that this process was started as, and return its exit status."""
    link = rank_link()
    try:
        offer = RunOffer.read(Path(link.place.run_dir))
        kind = timed_kind(offer.devices, link.place.uid)
        return rank_loop(spec, link, len(offer.devices), kind).run()
    finally:
        link.close()


def rank_loop(spec: RunSpec, link: RankLink, ranks: int, kind: str | None = None) -> RankLoop:
    """Return the loop of the rank that a link belongs to.

    Args:
        spec: What is trained.
        link: The way to the controller.
        ranks: Ranks that the run starts with.
        kind: Kind of device whose costs this rank tells where they are to be shown, ``None`` where
            another rank does.
    """
    place = link.place
    device = parse_device(place.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    job = spec.job(ranks, on_gpu=device.type == "cuda")
    timeouts = spec.timeouts()
    identity = Identity(
        run=place.run,
        uid=place.uid,
        number=place.number,
        host=place.host,
        device=device,
        run_dir=Path(place.run_dir),
        outlives_ranks=True,
    )
    job = dataclasses.replace(job, epoch_fn=_telling_of_steps(link, job.epoch_fn))
    machine = RankMachine(place.uid, place.incarnation, timeouts.controller_grace)

    def tell(message: TelemetryRecord | None) -> None:
        if message is not None:
            link.send(message)

    def build() -> Trainee:
        if spec.config.profile_graph and kind is not None:
            tell(costs(job, device, kind))
        label = torch.cuda.get_device_name(device) if device.type == "cuda" else None
        witness = Witness(place, link.send, label=label)
        trainee = Trainee(job, identity, timeouts, link.is_interrupted, witness)
        if place.number == 0:
            tell(introduce(trainee.model, trainee.optimizer))
        return trainee

    return RankLoop(machine, link, build)


def _telling_of_steps(link: RankLink, given: EpochFn | None) -> EpochFn:
    """Return a function of an epoch that first tells how the steps before it ran.

    Args:
        link: The way to the controller.
        given: The user's own function of an epoch.
    """
    notes = StepNotes()

    def tell(epoch: int, worker: Worker) -> None:
        for note in notes.fresh(worker.train_step.stats()):
            link.send(LogLine(level="info", text=note.text))
            if note.fallback is not None:
                link.send(AlertRaised(code="capture", message=note.text))
        if given is not None:
            call_epoch_fn(given, epoch, worker)

    return tell
