"""What the nodes of a graph cost on one kind of device, told by the first rank that has one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import torch

from flodl.data import DataLoader
from flodl.distributed.protocol.messages import TelemetryRecord
from flodl.distributed.protocol.values import Device, Plain
from flodl.graph import Graph
from flodl.metrics.scalars import ScalarScope
from flodl.trainer.ranks.introduction import MOST_SVG_BYTES
from flodl.web.svg import safe_svg

if TYPE_CHECKING:
    from flodl.distributed.worker.job import Job
    from flodl.records.board import RunBoard

_logger = logging.getLogger(__name__)
COSTS = "costs"
"""Path of the message."""


def timed_kind(devices: Sequence[Device], uid: str) -> str | None:
    """Return the kind of device that a rank is to time, ``None`` where another rank does.

    Args:
        devices: What the run was started with on this host.
        uid: The rank's, which ends in the ordinal of its device.
    """
    ordinal = uid.rpartition("/")[2]
    if not ordinal.isdecimal() or int(ordinal) >= len(devices):
        return None
    kinds = [device.name for device in devices]
    kind = kinds[int(ordinal)]
    return kind if kinds.index(kind) == int(ordinal) else None


def costs(job: Job, device: torch.device, kind: str) -> TelemetryRecord | None:
    """Return the picture of a job's graph, colored by what its nodes cost in a forward pass.

    The graph is one of its own, made before the one that is trained: eager, without gradients, in
    evaluation mode. Random numbers are drawn, so the streams of training are seeded after it. What
    goes wrong is a warning, and ``None``; so is a model that is no graph.

    Args:
        job: What is trained.
        device: Where the pass is taken.
        kind: Name of that kind of device, for people.
    """
    try:
        model = job.built_model(device)
        if not isinstance(model, Graph):
            _logger.warning("profile_graph: %s is no flodl.Graph", type(model).__name__)
            return None
        picture = _timed_picture(job, device, model)
    except Exception as error:  # noqa: BLE001 (an observer must not end what it observes)
        _logger.warning("profile_graph: the model could not be timed: %s", error)
        return None
    if len(picture.encode()) > MOST_SVG_BYTES:
        _logger.warning("profile_graph: the picture is larger than %d bytes", MOST_SVG_BYTES)
        return None
    return TelemetryRecord(path=COSTS, values={"kind": kind, "svg": picture})


def show_costs(board: RunBoard, values: Mapping[str, Plain]) -> None:
    """Show what a rank has told of the cost of nodes on its kind of device."""
    kind, svg = values.get("kind"), values.get("svg")
    if isinstance(kind, str) and isinstance(svg, str):
        board.add_heatmap(kind, safe_svg(svg))
        board.tree.describe()  # viewers look again


def _timed_picture(job: Job, device: torch.device, model: Graph) -> str:
    assert job.train_step is not None
    options = {**job.loader, "resident": None, "streaming": True}
    loader = DataLoader(
        job.dataset,
        batch_size=job.batch_size,
        device=device,
        names=job.names,
        drop_last=False,
        **options,
    )
    model.eval()
    with (
        closing(loader),
        closing(loader.epoch(0)) as batches,
        torch.no_grad(),
        ScalarScope().active(),
    ):
        batch = next(batches)
        job.train_step(model, batch)  # warms up what the times are not to hold
        with model.profiling_run():
            job.train_step(model, batch)
    return model.svg_with_profile(engine="builtin")
