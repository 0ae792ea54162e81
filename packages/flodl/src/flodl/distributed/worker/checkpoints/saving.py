"""A checkpoint as one rank sees it: what it copies now, what it writes later, and who seals it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from flodl.distributed.protocol.messages import RunCallback
from flodl.distributed.protocol.values import FileEntry
from flodl.distributed.worker.checkpoints.own_state import OwnParts
from flodl.distributed.worker.checkpoints.parts import Share, add_shared, rank_part
from flodl.engine.bundle import write_bundle
from flodl.engine.copies import PartCopies
from flodl.engine.drafts import Draft, discard_drafts
from flodl.engine.numbered import base_of, keep_last
from flodl.engine.resume import flodl_version

if TYPE_CHECKING:
    from flodl.distributed.averaging.plane import Plane
    from flodl.distributed.worker.job import Job
    from flodl.distributed.worker.worker import Worker

Saving: TypeAlias = Callable[[], tuple[FileEntry, ...]]
"""Writes what was copied, and returns the parts; on another thread."""


class Saver:
    """Copies a rank's share of a checkpoint.

    Args:
        job: Where checkpoints go, how many are kept, and the user's function.
        worker: The rank's counters, model, optimizer and step.
        plane: Holds the values that all ranks share.
        dataset_signature: Tells the data that the run is over.
    """

    def __init__(
        self, job: Job, worker: Worker, plane: Plane, dataset_signature: Callable[[], str]
    ) -> None:
        self._job = job
        self._worker = worker
        self._plane = plane
        self._dataset_signature = dataset_signature
        self._signatures: dict[str, str] = {}
        self.resumed_from: Path | None = None
        """Stem of the checkpoint that the run goes on from, which stays."""

    def checkpoint(self, callback: RunCallback, work: dict[str, Any] | None) -> Saving | None:
        """Call the user's function, and copy; ``None`` where nothing is to be written."""
        share = Share(
            part=callback.part,
            parts=callback.parts,
            lead=callback.lead,
            is_sharded=callback.mode == "sharded",
        )
        meta = self._meta(callback, share) if share.is_lead else {}
        copies = PartCopies()
        with self._plane.consensus.swapped():
            if share.is_lead and self._job.checkpoint_fn is not None:
                self._job.checkpoint_fn(callback.epoch, self._worker.model)
            if not callback.stem:
                return None
            add_shared(copies, self._worker.train_step, self._plane.consensus, share, meta)
            copies.copy()
        if callback.mode == "exact":
            OwnParts(worker=self._worker, plane=self._plane).add_to(copies, share, work or {})
            copies.copy()
        stem = Path(callback.stem)
        if callback.mode == "full":
            return partial(self._write_whole, stem, copies, meta)
        return partial(_write_parts, Draft(stem, callback.draft), copies)

    def sealing(self, callback: RunCallback) -> Saving:
        """Return what lets the parts that all ranks have written take their places."""
        share = Share(
            parts=callback.parts, lead=callback.lead, is_sharded=callback.mode == "sharded"
        )
        return partial(self._seal, callback, self._meta(callback, share))

    def _write_whole(
        self, stem: Path, copies: PartCopies, meta: Mapping[str, Any]
    ) -> tuple[FileEntry, ...]:
        listed = write_bundle(stem, copies.writers(), meta)
        self._tidy(stem)
        return entries(stem, listed)

    def _seal(self, callback: RunCallback, meta: Mapping[str, Any]) -> tuple[FileEntry, ...]:
        stem = Path(callback.stem)
        listed = {
            file.name.removeprefix(stem.name): {"sha256": file.sha256, "bytes": file.size}
            for file in callback.files
        }
        Draft(stem, callback.draft).seal(listed, meta)
        self._tidy(stem)
        return callback.files

    def _tidy(self, stem: Path) -> None:
        """Remove what attempts before have left, and checkpoints that are too old."""
        discard_drafts(stem)
        base = base_of(stem)
        if base is not None:
            keep_last(base, self._job.checkpoint_keep, spare=self.resumed_from)

    def _meta(self, callback: RunCallback, share: Share) -> dict[str, Any]:
        if not self._signatures:
            self._signatures = {
                "model": self._plane.signature,
                "dataset": self._dataset_signature(),
            }
        owes = callback.mode == "exact" and self._job.elche.error_feedback
        return {
            **callback.meta,
            "seed": self._job.seed,
            "lr_scale": self._worker.train_step.state_dict()["lr_scale"],
            "signatures": self._signatures,
            "versions": {"flodl": flodl_version(), "torch": str(torch.__version__)},
            "checkpoint_mode": callback.mode,
            "shards": share.shards,
            "residual": [rank_part(part) for part in range(share.parts)] if owes else None,
        }


def _write_parts(draft: Draft, copies: PartCopies) -> tuple[FileEntry, ...]:
    listed = {suffix: draft.write(suffix, write) for suffix, write in copies.writers().items()}
    return entries(draft.stem, listed)


def entries(stem: Path, listed: Mapping[str, Mapping[str, Any]]) -> tuple[FileEntry, ...]:
    """Return the parts of a checkpoint as they are told to the controller."""
    return tuple(
        FileEntry(name=f"{stem.name}{suffix}", sha256=part["sha256"], size=part["bytes"])
        for suffix, part in listed.items()
    )
