"""What the controller contributes to a checkpoint's meta file, and takes from it again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flodl.core.errors import ConfigError
from flodl.distributed.controller.ledger import Ledger
from flodl.distributed.controller.run import Run
from flodl.distributed.controller.settings import RunSettings
from flodl.distributed.controller.tallies import EpochTally
from flodl.distributed.elche import ElChe, MetaController
from flodl.distributed.protocol.values import Plain, Ranges

SCHEMA_VERSION = 1


def checkpoint_meta(run: Run, reason: str) -> dict[str, Plain]:
    """Return plain values from which a run of any size can go on."""
    active = run.active()
    members: list[Plain] = [
        {"uid": member.uid, "number": member.number, "device": member.device} for member in active
    ]
    devices: list[Plain] = [member.device for member in active]
    ledger: list[Plain] = [
        {
            **dataclasses.asdict(run.ledger.account(epoch)),
            "committed_ranges": _plain(run.ledger.committed_ranges(epoch)),
            "skipped_ranges": _plain(run.ledger.skipped_ranges(epoch)),
        }
        for epoch in run.ledger.open_epochs
    ]
    meta: dict[str, Plain] = {
        "schema_version": SCHEMA_VERSION,
        "epoch": run.epoch,
        "next_epoch": run.next_epoch,
        "ledger": ledger,
        "global_step": run.global_step,
        "window": run.version,
        "generation": run.gen,
        "members": members,
        "world": {"members": len(active), "devices": devices},
        "mode": run.settings.elche.mode.value,
        "save_reason": reason,
        "guard": dict(run.guard.state()),  # type: ignore[arg-type]
        "meta_controller": run.meta.to_state(),
    }
    if run.elche is not None:
        meta["elche"] = json.loads(json.dumps(run.elche.to_state(exact=True)))
    return meta


def _plain(ranges: Ranges) -> list[Plain]:
    return [[start, stop] for start, stop in ranges]


def _check_size(run: Run, epoch: int, total: int) -> None:
    low, high = run.settings.plan.bounds(epoch)
    ours = high - low + run.settings.plan.dropped(epoch)
    if ours != total:
        raise ConfigError(
            f"the checkpoint is in the middle of an epoch of {total} samples, and epoch {epoch} "
            f"of this run has {ours}",
            hint="resume with the data, the batch size and the splits that it was made with",
        )


def resume(settings: RunSettings, meta: Mapping[str, Any]) -> Run:
    """Return a run that goes on where a checkpoint was written, with any number of members.

    Samples that were committed are not trained again. In the same mode the cadence starts with
    the speeds that it knew, of the same members and of like devices. A checkpoint of a run on one
    device has no open epochs; the run goes on with the next one.

    Raises:
        ConfigError: A newer version wrote it, or it is of other data.
        AccountingError: What it says was done overlaps.
    """
    if meta.get("schema_version", SCHEMA_VERSION) > SCHEMA_VERSION:
        raise ConfigError(
            f"checkpoint of schema {meta['schema_version']}: this version reads up to "
            f"{SCHEMA_VERSION}",
            hint="resume with the version that wrote it, or a newer one",
        )
    run = Run(settings)
    run.is_resumed, run.resumed_from = True, meta
    restore(run, meta)
    return run


def restore(run: Run, meta: Mapping[str, Any]) -> None:
    """Bring a run that has not begun to what every checkpoint holds."""
    settings = run.settings
    run.version = run.last_window = int(meta.get("window", 0))
    run.global_step = int(meta["global_step"])
    run.next_epoch = int(meta.get("next_epoch", meta["epoch"]))
    run.ledger, run.tallies = Ledger(settings.plan), {}
    for item in meta.get("ledger", ()):
        _reopen(run, item)
    if "guard" in meta:
        run.guard.load(meta["guard"])
    if "meta_controller" in meta:
        run.meta = MetaController.from_state(meta["meta_controller"])
    run.elche = None
    if "elche" in meta and meta.get("mode") == settings.elche.mode:
        run.elche = ElChe.from_state(meta["elche"], settings.elche)
        run.devices = {member["uid"]: member["device"] for member in meta["members"]}


def _reopen(run: Run, item: Mapping[str, Any]) -> None:
    """Open an epoch of which a part was done."""
    epoch = int(item["epoch"])
    _check_size(run, epoch, int(item["total"]))
    run.ledger.reopen(
        epoch,
        _ranges(item["committed_ranges"]),
        _ranges(item.get("skipped_ranges", ())),
        int(item.get("retrained", 0)),
    )
    run.tallies[epoch] = EpochTally(epoch=epoch, started_at=0.0)


def _ranges(pairs: Iterable[Sequence[Any]]) -> Ranges:
    return tuple((int(start), int(stop)) for start, stop in pairs)
