"""What ``run()`` does in a rank: train what it is told to, then end the process."""

from __future__ import annotations

from pathlib import Path

import torch

from flodl.device.info import parse_device
from flodl.distributed.launch.child import rank_link
from flodl.distributed.lifecycle.rank import RankMachine
from flodl.distributed.worker.identity import Identity
from flodl.distributed.worker.link import RankLink
from flodl.distributed.worker.loop import RankLoop
from flodl.distributed.worker.trainee import Trainee
from flodl.distributed.worker.witness import Witness
from flodl.trainer.ranks.introduction import introduce
from flodl.trainer.ranks.offer import RunOffer
from flodl.trainer.ranks.spec import RunSpec


def be_rank(spec: RunSpec) -> int:
    """Train as the rank that this process was started as, and return its exit status."""
    link = rank_link()
    try:
        offer = RunOffer.read(Path(link.place.run_dir))
        return rank_loop(spec, link, len(offer.devices)).run()
    finally:
        link.close()


def rank_loop(spec: RunSpec, link: RankLink, ranks: int) -> RankLoop:
    """Return the loop of the rank that a link belongs to.

    Args:
        spec: What is trained.
        link: The way to the controller.
        ranks: Ranks that the run starts with.
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
    machine = RankMachine(place.uid, place.incarnation, spec.config.elastic.controller_grace)

    def build() -> Trainee:
        label = torch.cuda.get_device_name(device) if device.type == "cuda" else None
        witness = Witness(place, link.send, label=label)
        trainee = Trainee(job, identity, timeouts, link.is_interrupted, witness)
        if place.number == 0 and (told := introduce(trainee.model, trainee.optimizer)) is not None:
            link.send(told)
        return trainee

    return RankLoop(machine, link, build)
