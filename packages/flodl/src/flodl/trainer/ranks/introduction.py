"""What a rank says of the model that it trains, and what the controller shows of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flodl.distributed.protocol.messages import TelemetryRecord
from flodl.distributed.protocol.values import Plain
from flodl.graph import Graph
from flodl.monitor.picture import json_metadata, parameter_counts
from flodl.trainer.portrait import Portrait
from flodl.web.svg import safe_svg

if TYPE_CHECKING:
    import torch
    from torch import nn

    from flodl.records.board import RunBoard
    from flodl.trainer.ranks.spec import RunSpec

_logger = logging.getLogger(__name__)
MODEL = "model"
"""Path of the message."""
MOST_SVG_BYTES = 512 << 10
"""Size of the largest picture that a rank sends."""


def introduction(model: nn.Module, optimizer: torch.optim.Optimizer) -> TelemetryRecord:
    """Return what a rank tells of its model, once; a picture of too many nodes is left out."""
    name = type(model).__name__
    values: dict[str, Plain] = {
        "model": name,
        "optimizer": _optimizer_text(optimizer),
        "parameters": dict(parameter_counts(model)),
    }
    if isinstance(model, Graph):
        values |= {"label": model.label or name, "hash": model.structural_hash}
        picture = model.svg(engine="builtin")
        if len(picture.encode()) <= MOST_SVG_BYTES:
            values["svg"] = picture
    return TelemetryRecord(path=MODEL, values=values)


def portrait_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> Portrait:
    """Return what a run says of a model that is in this process."""
    told = introduce(model, optimizer)
    return Portrait.of({} if told is None else told.values, settings)


def show_model(board: RunBoard, settings: dict[str, Any], values: Mapping[str, Plain]) -> None:
    """Show what a rank has told of its model, beside the settings of the run."""
    told = ("model", "optimizer", "parameters")
    settings |= {key: values[key] for key in told if key in values}
    board.set_metadata({**settings, **board.metadata})
    label, svg = values.get("label"), values.get("svg")
    if isinstance(svg, str):
        board.set_svg(safe_svg(svg))
    if isinstance(label, str):
        facts = {"label": label, "hash": values.get("hash")}
        board.set_facts(**facts)
        board.tree.describe(**facts)
    else:
        board.tree.describe()  # viewers look again


def settings_shown(spec: RunSpec, *, ranks: int, mode: str) -> dict[str, Any]:
    """Return the settings of a run that people look up."""
    config = spec.config
    assert config.dataset is not None
    elche = spec.elche(on_gpu=mode.startswith("nccl"))
    shown = {
        "mode": mode,
        "ranks": ranks,
        "epochs": config.num_epochs,
        "batch_size": config.batch_size,
        "samples": len(config.dataset),
        "seed": config.seed,
        "anchor": elche.anchor,
        "resumed_from": None if config.resume_from is None else str(config.resume_from),
    }
    return json_metadata({key: value for key, value in shown.items() if value is not None})


def introduce(model: nn.Module, optimizer: torch.optim.Optimizer) -> TelemetryRecord | None:
    """Return the introduction, ``None`` where the model cannot be pictured or counted."""
    try:
        return introduction(model, optimizer)
    except Exception as error:  # noqa: BLE001 (an observer must not end what it observes)
        _logger.warning("the model is not shown: %s", error)
        return None


def _optimizer_text(optimizer: torch.optim.Optimizer) -> str:
    rates = sorted({float(group["lr"]) for group in optimizer.param_groups})
    shown = ", ".join(f"{rate:g}" for rate in rates[:3])
    return f"{type(optimizer).__name__}, lr {shown}"
